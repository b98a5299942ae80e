//! A small reader of HTML: which tags, with which attributes, and whether they are balanced.

use std::collections::BTreeMap;

const VOID: [&str; 4] = ["meta", "link", "br", "img"];

#[derive(Debug)]
pub struct Tag {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
}

/// Every opening tag in order. Panics where a tag is not closed, closed in the wrong order, or not one at all.
pub fn tags(page: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let after = &rest[start..];
        let end = after.find('>').unwrap_or_else(|| panic!("no end: {}", head(after)));
        let inside = &after[1..end];
        rest = &after[end + 1..];
        if inside.starts_with('!') {
            assert_eq!(inside, "!doctype html");
        } else if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in the wrong order before {}", head(rest));
        } else {
            let closed = inside.ends_with('/');
            let (name, attributes) = parse(inside.trim_end_matches('/'));
            if !closed && !VOID.contains(&name.as_str()) {
                open.push(name.clone());
            }
            tags.push(Tag { name, attributes });
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    tags
}

fn parse(inside: &str) -> (String, BTreeMap<String, String>) {
    let (name, mut rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty(), "no tag: <{}", head(inside));
    let mut attributes = BTreeMap::new();
    rest = rest.trim();
    while !rest.is_empty() {
        let stop = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, after) = rest.split_at(stop);
        assert!(
            key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !key.is_empty(),
            "no attribute: {inside}"
        );
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => after.strip_prefix('"').and_then(|a| a.split_once('"')).expect("a quoted attribute"),
            None => ("", after),
        };
        assert!(attributes.insert(key.to_owned(), value.to_owned()).is_none(), "{key} twice in <{}", head(inside));
        rest = after.trim_start();
    }
    (name.to_owned(), attributes)
}

fn head(text: &str) -> String {
    text.chars().take(80).collect()
}
