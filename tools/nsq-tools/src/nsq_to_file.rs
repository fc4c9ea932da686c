mod archive;
mod compression;
mod config;
mod date_format;
mod disk;
mod file_name;
mod topics;
