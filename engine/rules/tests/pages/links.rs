//! The links of the pages, and the pages that comments name.

use super::{root, texts_below};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Returns the lines of a page that are neither code nor an output.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.starts_with("    ");
        is_prose.then_some((index + 1, line))
    })
}

/// Returns the anchor that GitHub makes of a heading.
fn anchor_of(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // The text of a link remains.
    while let Some((before, (label, behind))) = rest
        .split_once('[')
        .and_then(|(before, it)| Some((before, it.split_once("](")?)))
    {
        text.push_str(before);
        text.push_str(label);
        rest = behind.split_once(')').map_or("", |(_, it)| it);
    }
    text.push_str(rest);
    let kept = text.trim().chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the anchors of a page. A heading that comes again has a number behind it.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(page).filter_map(|(_, line)| {
        let level = line.len() - line.trim_start_matches('#').len();
        (level > 0)
            .then(|| line[level..].strip_prefix(' '))
            .flatten()
    });
    let numbered = headings.map(|heading| {
        let anchor = anchor_of(heading);
        let count = counts.entry(anchor.clone()).or_default();
        *count += 1;
        match *count {
            1 => anchor,
            again => format!("{anchor}-{}", again - 1),
        }
    });
    numbered.collect()
}

/// Returns the targets of the links of a page with the numbers of their lines. A link may go over the end of a line.
fn links(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(page) {
        let mut rest = line;
        while let Some((_, behind)) = rest.split_once("](") {
            let (target, after) = behind.split_once(')').unwrap_or((behind, ""));
            found.push((number, target.to_owned()));
            rest = after;
        }
    }
    found
}

/// Removes `..` from a path.
fn tidied(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                tidied.pop();
            }
            Component::CurDir => {}
            _ => tidied.push(part),
        }
    }
    tidied
}

#[test]
fn each_link_of_the_pages_leads_somewhere() {
    let pages: BTreeMap<String, String> = texts_below(&["."], "md")
        .into_iter()
        .map(|(name, text)| (tidied(Path::new(&name)).display().to_string(), text))
        .collect();
    assert!(pages.len() > 30, "{} pages", pages.len());
    let mut wrong = Vec::new();
    for (name, page) in &pages {
        for (number, link) in links(page) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = Path::new(name).parent().expect("a file has a folder");
            let target = match file {
                "" => PathBuf::from(name),
                _ => tidied(&folder.join(file)),
            };
            let has_anchor = anchor.is_empty() || {
                let page = pages.get(&*target.to_string_lossy());
                page.is_some_and(|page| anchors(page).contains(anchor))
            };
            if !root().join(&target).exists() || !has_anchor {
                wrong.push(format!("{name}:{number}: {link}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} links:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Returns the paths `docs/...` with these endings in a text.
fn named_pages<'t>(text: &'t str, endings: &'t [&str]) -> impl Iterator<Item = &'t str> {
    let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    text.match_indices("docs/").filter_map(move |(at, _)| {
        let is_begin = at == 0 || !is_of_path(text.as_bytes()[at - 1]);
        let rest = &text[at..];
        let length = rest.bytes().take_while(|byte| is_of_path(*byte)).count();
        let path = rest[..length].trim_end_matches(['.', '/', '-']);
        (is_begin && endings.iter().any(|ending| path.ends_with(ending))).then_some(path)
    })
}

#[test]
fn each_page_that_the_source_names_is_there() {
    let mut wrong = BTreeSet::new();
    let mut count = 0;
    for extension in ["rs", "py", "toml", "yml", "yaml", "sh", "differences"] {
        for (name, text) in texts_below(&["."], extension) {
            for page in named_pages(&text, &[".md", ".svg", ".json"]) {
                count += 1;
                if !root().join(page).exists() {
                    wrong.insert(format!("{name}: {page}"));
                }
            }
        }
    }
    assert!(count > 50, "{count} pages are named");
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn headings_have_the_anchors_of_github() {
    for (heading, anchor) in [
        (
            "The logs decide, not nsqd.dat",
            "the-logs-decide-not-nsqddat",
        ),
        ("`--dedup`: a *rule*", "--dedup-a-rule"),
        ("TLS, users and browsers", "tls-users-and-browsers"),
        ("Of [a link](x.md) too", "of-a-link-too"),
    ] {
        assert_eq!(anchor_of(heading), anchor);
    }
    let page = "# A\n## B\n```\n# no\n```\n## B\n";
    let found: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(found, ["a", "b", "b-1"]);
}
