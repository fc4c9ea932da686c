//! The graph of a crate's modules, read from its sources. An edge leads to each module that a
//! module names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The path of a module in its crate, such as `broker::time`. The crate's root is the empty path.
type ModulePath = Vec<String>;

/// The modules of a crate, except those of its tests. An edge leads from a module to a module that
/// it names.
#[derive(Debug, Default)]
pub(crate) struct ModuleGraph {
    edges: BTreeMap<String, BTreeSet<String>>,
}

/// The code of one module.
struct Source {
    tokens: Vec<String>,
    children: Vec<String>,
}

impl ModuleGraph {
    /// Reads the crate whose root is the file `root`. A module is a file.
    pub(crate) fn of_files(root: &Path) -> ModuleGraph {
        let directory = root.parent().expect("a file is in a directory");
        let read = |path: &[String]| {
            if path.is_empty() {
                return Some(fs::read_to_string(root).expect("the root of the crate"));
            }
            let below = directory.join(path.join("/"));
            let file = fs::read_to_string(below.with_extension("rs"));
            file.or_else(|_| fs::read_to_string(below.join("mod.rs")))
                .ok()
        };
        ModuleGraph::read(read)
    }

    /// Reads the modules whose text `read` returns.
    pub(crate) fn read(read: impl Fn(&[String]) -> Option<String>) -> ModuleGraph {
        let mut sources = BTreeMap::new();
        let mut unread: Vec<ModulePath> = vec![Vec::new()];
        while let Some(path) = unread.pop() {
            let text = read(&path).unwrap_or_else(|| panic!("module {} has a file", name(&path)));
            let source = source(&text);
            for child in &source.children {
                unread.push([&path[..], std::slice::from_ref(child)].concat());
            }
            sources.insert(path, source);
        }
        let mut graph = ModuleGraph::default();
        for (path, source) in &sources {
            let edges = graph.edges.entry(name(path)).or_default();
            for named in named_paths(&source.tokens) {
                if let Some(module) = resolve(path, &named, source, &sources)
                    && module != *path
                {
                    edges.insert(name(&module));
                }
            }
        }
        graph
    }

    /// Returns the graph of the modules that the crate's root declares. Each stands for all modules
    /// below it.
    pub(crate) fn top_level(&self) -> ModuleGraph {
        let top = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
        let mut graph = ModuleGraph::default();
        for (module, named) in &self.edges {
            let module = top(module);
            let named = named.iter().map(|other| top(other));
            let others = named.filter(|other| *other != module);
            let others = others.collect::<BTreeSet<_>>();
            graph.edges.entry(module).or_default().extend(others);
        }
        graph
    }

    /// Removes the edges that lead from a module to the modules around it.
    pub(crate) fn leave_outside(&mut self) {
        for (module, named) in &mut self.edges {
            named.retain(|other| !other.is_empty() && !is_within(module, other));
        }
    }

    /// Returns the number of modules.
    pub(crate) fn len(&self) -> usize {
        self.edges.len()
    }

    /// Returns a list of modules in which each names the next one and the last one names the first
    /// one, such as `client -> broker -> client`.
    pub(crate) fn cycle(&self) -> Option<String> {
        let mut done = BTreeSet::new();
        let starts = self.edges.keys();
        let mut cycles =
            starts.filter_map(|start| self.cycle_from(start, &mut Vec::new(), &mut done));
        cycles.next()
    }

    fn cycle_from<'a>(
        &'a self,
        module: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<String> {
        if let Some(first) = way.iter().position(|other| *other == module) {
            let shown = |name: &&str| {
                (if name.is_empty() {
                    "the crate's root"
                } else {
                    *name
                })
                .to_owned()
            };
            let mut cycle = way[first..].iter().map(shown).collect::<Vec<_>>();
            cycle.push(cycle[0].clone());
            return Some(cycle.join(" -> "));
        }
        if !done.insert(module) {
            return None;
        }
        way.push(module);
        let mut named = self.edges.get(module).into_iter().flatten();
        let cycle = named.find_map(|other| self.cycle_from(other, way, done));
        way.pop();
        cycle
    }
}

/// Returns true if `module` is `whole` or a part of it.
fn is_within(module: &str, whole: &str) -> bool {
    let rest = module.strip_prefix(whole);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn name(path: &[String]) -> String {
    path.join("::")
}

/// Returns the module that a path in `module` leads to, or `None` for a path out of the crate.
fn resolve(
    module: &ModulePath,
    named: &[String],
    source: &Source,
    sources: &BTreeMap<ModulePath, Source>,
) -> Option<ModulePath> {
    let mut found = module.clone();
    let mut rest = named.iter().peekable();
    match named.first()?.as_str() {
        "crate" => {
            found.clear();
            rest.next();
        }
        "self" => {
            rest.next();
        }
        "super" => {
            while rest.next_if(|part| *part == "super").is_some() {
                found.pop();
            }
        }
        first if source.children.iter().any(|child| child == first) => {}
        _ => return None,
    }
    for part in rest {
        found.push(part.clone());
        if !sources.contains_key(&found) {
            found.pop();
            break;
        }
    }
    Some(found)
}

/// Returns the paths with several parts in a module's code. The braces of a `use` are expanded.
fn named_paths(tokens: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_word(&tokens[at]) {
            at = read_tree(tokens, at, &[], &mut paths);
        } else {
            at += 1;
        }
    }
    paths
}

/// Reads the path at `at` with the content of its braces. Returns the end of the path.
fn read_tree(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = before.to_vec();
    while tokens.get(at).is_some_and(|token| is_word(token)) {
        path.push(tokens[at].clone());
        at += 1;
        if tokens.get(at).map(String::as_str) != Some("::") {
            break;
        }
        at += 1;
        if tokens.get(at).map(String::as_str) == Some("{") {
            at += 1;
            while tokens.get(at).is_some_and(|token| token != "}") {
                if is_word(&tokens[at]) {
                    at = read_tree(tokens, at, &path, paths);
                } else {
                    at += 1;
                }
            }
            return at + 1;
        }
    }
    if path.len() > 1 {
        paths.push(path);
    }
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

/// Parses a text and omits the items that are compiled only for tests.
fn source(text: &str) -> Source {
    let mut tokens = Vec::new();
    let mut all = tokens_of(text).into_iter().peekable();
    while let Some(token) = all.next() {
        tokens.push(token);
        if tokens.ends_with(&["#", "[", "cfg", "(", "test", ")", "]"].map(str::to_owned)) {
            tokens.truncate(tokens.len() - 7);
            // The item ends with its semicolon or its last brace.
            let mut depth = 0;
            for token in all.by_ref() {
                match token.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    _ => {}
                }
                if depth == 0 && (token == ";" || token == "}") {
                    break;
                }
            }
        }
    }
    let children = tokens
        .windows(3)
        .filter(|part| part[0] == "mod" && part[2] == ";");
    let children = children.map(|part| part[1].clone()).collect();
    Source { tokens, children }
}

/// Returns the words and signs of a text, without comments, strings and characters.
fn tokens_of(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let bytes = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(bytes) = literal_bytes(rest) {
            bytes
        } else if first.is_alphanumeric() || first == '_' {
            let is_inside = |c: char| c.is_alphanumeric() || c == '_';
            let bytes = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
            tokens.push(rest[..bytes].to_owned());
            bytes
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[bytes..];
    }
    tokens
}

/// Returns the length of the string or character that `text` begins with.
fn literal_bytes(text: &str) -> Option<usize> {
    let raw = text.strip_prefix("br").or_else(|| text.strip_prefix('r'));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(inside) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let before = text.len() - inside.len();
            return Some(before + inside.find(&end)? + end.len());
        }
    }
    let quote = text.chars().next()?;
    let mut inside = text[1..].char_indices();
    match quote {
        '"' => {
            while let Some((at, character)) = inside.next() {
                match character {
                    '\\' => {
                        inside.next();
                    }
                    '"' => return Some(at + 2),
                    _ => {}
                }
            }
            None
        }
        '\'' => {
            let (_, first) = inside.next()?;
            let (at, second) = inside.next()?;
            if first == '\\' {
                return inside.find(|(_, c)| *c == '\'').map(|(at, _)| at + 2);
            }
            // Any other quote begins a lifetime.
            (second == '\'').then_some(at + 2)
        }
        _ => None,
    }
}
