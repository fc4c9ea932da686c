//! Writes a JSON value again in the form of Go's `encoding/json`: without white space, keys sorted,
//! strings escaped as in Go.
//!
//! ```text
//!   text ──read──► nodes ──print──► text
//! ```
//!
//! The text has been checked before, so each value is known by its first character. Both steps keep
//! their own stack and take linear time, so no nesting of a message exhausts a thread.

use wire::go_json::push;

use super::number;
use super::object;

/// A value. Inner values are places in the list of all nodes.
enum Node<'a> {
    /// A string, a number or a literal: its text.
    Scalar(&'a str),
    Array(Vec<usize>),
    /// The fields: in the order of the text while the object is read, and sorted from then on.
    Object(Vec<(String, usize)>),
}

/// Appends the value of a field.
pub(crate) fn push_value(out: &mut String, value: &str) {
    match value.as_bytes().first() {
        Some(b'{' | b'[') => print(out, &read(value)),
        _ if number::value(value).is_some() => number::push_field(out, value),
        _ => push_scalar(out, value),
    }
}

/// Returns the nodes of an object or array. The first node is the object or array itself.
fn read(text: &str) -> Vec<Node<'_>> {
    let mut nodes = Vec::new();
    // The objects and arrays whose end has not come, each with the key that waits for its value.
    let mut open: Vec<(usize, Option<String>)> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let mut end = 1;
        match first {
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' => {}
            b'}' | b']' => {
                if let Some((node, _)) = open.pop() {
                    sort_fields(&mut nodes[node]);
                }
            }
            b'{' | b'[' => {
                let node = match first {
                    b'{' => Node::Object(Vec::new()),
                    _ => Node::Array(Vec::new()),
                };
                add(&mut nodes, &mut open, node);
                open.push((nodes.len() - 1, None));
            }
            b'"' => {
                end = string_end(rest);
                let parent = open.last_mut().map(|(node, key)| (&nodes[*node], key));
                match parent {
                    Some((Node::Object(_), key @ None)) => *key = object::string(&rest[..end]),
                    _ => add(&mut nodes, &mut open, Node::Scalar(&rest[..end])),
                }
            }
            _ => {
                let is_end = |c| matches!(c, ' ' | '\t' | '\r' | '\n' | ',' | '}' | ']');
                end = rest.find(is_end).unwrap_or(rest.len());
                add(&mut nodes, &mut open, Node::Scalar(&rest[..end]));
            }
        }
        rest = &rest[end..];
    }
    nodes
}

/// Adds a node to the list and to the innermost object or array.
fn add<'a>(nodes: &mut Vec<Node<'a>>, open: &mut [(usize, Option<String>)], node: Node<'a>) {
    let place = nodes.len();
    if let Some((parent, key)) = open.last_mut() {
        match &mut nodes[*parent] {
            Node::Array(elements) => elements.push(place),
            Node::Object(fields) => fields.push((key.take().unwrap_or_default(), place)),
            Node::Scalar(_) => {}
        }
    }
    nodes.push(node);
}

/// Sorts the fields of an object by name. The last one of several fields with the same name stays.
fn sort_fields(node: &mut Node<'_>) {
    if let Node::Object(fields) = node {
        fields.reverse();
        // The sort is stable, so the last one of the text is now the first of its name.
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        fields.dedup_by(|(later, _), (first, _)| later == first);
    }
}

fn print(out: &mut String, nodes: &[Node<'_>]) {
    // The nodes that are being printed, each with its next inner value.
    let mut stack = vec![(0, 0)];
    while let Some((node, next)) = stack.last_mut() {
        let (count, brackets) = match &nodes[*node] {
            Node::Scalar(text) => {
                push_scalar(out, text);
                stack.pop();
                continue;
            }
            Node::Array(elements) => (elements.len(), ['[', ']']),
            Node::Object(fields) => (fields.len(), ['{', '}']),
        };
        if *next == 0 {
            out.push(brackets[0]);
        }
        if *next == count {
            out.push(brackets[1]);
            stack.pop();
            continue;
        }
        if *next > 0 {
            out.push(',');
        }
        let inner = match &nodes[*node] {
            Node::Object(fields) => {
                push(out, &fields[*next].0);
                out.push(':');
                fields[*next].1
            }
            Node::Array(elements) => elements[*next],
            Node::Scalar(_) => unreachable!("scalars have no inner values"),
        };
        *next += 1;
        stack.push((inner, 0));
    }
}

/// Appends a string, a number of an inner value, or a literal.
fn push_scalar(out: &mut String, value: &str) {
    if let Some(text) = object::string(value) {
        push(out, &text);
    } else if number::value(value).is_some() {
        number::push_inner(out, value);
    } else {
        out.push_str(value);
    }
}

/// Returns the length of the string at the front, with its quotes.
fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}
