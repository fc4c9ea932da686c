//! Checks of the sources and the pages of the whole workspace.

mod module_graph;
mod modules;
mod pages;
mod tidy;
