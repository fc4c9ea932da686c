//! [`JsonScanner`]: goes through a JSON text without building anything from it.
//!
//! The scanner follows the grammar of RFC 8259 for all that it passes. It allocates nothing, and it does not recurse,
//! so no text can exhaust the stack. Strings may hold bytes that are not UTF-8.

/// The most objects and arrays inside each other that [`JsonScanner::skip_value`] passes.
pub(crate) const DEPTH_MAX: u32 = u128::BITS;

/// A place in a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct JsonScanner<'b> {
    text: &'b [u8],
    at: usize,
}

/// The containers that a scanner is in: a bit each, set for an object. The innermost one is the lowest bit.
#[derive(Default)]
struct Containers {
    are_objects: u128,
    depth: u32,
}

impl Containers {
    fn enter(&mut self, is_object: bool) -> Option<()> {
        if self.depth == DEPTH_MAX {
            return None;
        }
        self.are_objects = self.are_objects << 1 | u128::from(is_object);
        self.depth += 1;
        Some(())
    }

    fn leave(&mut self) {
        self.are_objects >>= 1;
        self.depth -= 1;
    }

    /// True if the innermost one is an object. `None`: there is none.
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.are_objects & 1 == 1)
    }
}

/// All methods that return an `Option` return `None` if the text is no JSON there.
impl<'b> JsonScanner<'b> {
    /// Begins at the start of a text.
    pub(crate) fn new(text: &'b [u8]) -> JsonScanner<'b> {
        JsonScanner { text, at: 0 }
    }

    /// The place, in bytes from the start.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The bytes from a place up to the scanner's.
    pub(crate) fn since(&self, start: usize) -> &'b [u8] {
        &self.text[start..self.at]
    }

    /// Skips white space, and returns the byte behind it.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    /// Skips white space and one byte, if it is `wanted`.
    #[inline]
    pub(crate) fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// Takes the name of a member and the colon. Returns the name without its quotes, and with its escapes.
    pub(crate) fn name(&mut self) -> Option<&'b [u8]> {
        let name = self.string()?;
        self.take(b':')?;
        Some(name)
    }

    /// Takes a string. Returns the string without its quotes, and with its escapes.
    pub(crate) fn string(&mut self) -> Option<&'b [u8]> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(&self.text[start..self.at - 1]);
                }
                b'\\' => self.escape()?,
                0..b' ' => return None,
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let digits = self.text.get(self.at + 2..self.at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.at += 6;
            }
            _ => return None,
        }
        Some(())
    }

    fn literal(&mut self, wanted: &[u8]) -> Option<()> {
        let found = self.text[self.at..].starts_with(wanted);
        found.then(|| self.at += wanted.len())
    }

    /// Takes one or more digits.
    fn digits(&mut self) -> Option<()> {
        let rest = &self.text[self.at..];
        let count = rest.iter().take_while(|it| it.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }

    fn next_is(&mut self, wanted: &[u8]) -> bool {
        let next = self.text.get(self.at);
        let is_next = next.is_some_and(|next| wanted.contains(next));
        self.at += usize::from(is_next);
        is_next
    }

    fn number(&mut self) -> Option<()> {
        self.next_is(b"-");
        if !self.next_is(b"0") {
            self.digits()?;
        }
        if self.next_is(b".") {
            self.digits()?;
        }
        if self.next_is(b"eE") {
            self.next_is(b"+-");
            self.digits()?;
        }
        Some(())
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' => self.string().map(|_| ()),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => self.number(),
        }
    }

    /// Takes a value of any kind. Fails if the value has more than [`DEPTH_MAX`] containers inside each other.
    pub(crate) fn skip_value(&mut self) -> Option<()> {
        let mut containers = Containers::default();
        loop {
            let first = self.peek()?;
            match first {
                b'{' | b'[' => {
                    let is_object = first == b'{';
                    self.at += 1;
                    // ']' and '}' are two behind '[' and '{' in ASCII.
                    if self.peek()? == first + 2 {
                        self.at += 1;
                    } else {
                        containers.enter(is_object)?;
                        if is_object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar(first)?,
            }
            if self.leave_containers(&mut containers)? {
                return Some(());
            }
        }
    }

    /// Leaves the containers that end behind a value, and takes what comes before the next value. True: all are left.
    fn leave_containers(&mut self, containers: &mut Containers) -> Option<bool> {
        while let Some(is_object) = containers.innermost() {
            let next = self.peek()?;
            self.at += 1;
            match (next, is_object) {
                (b',', true) => {
                    self.name()?;
                    return Some(false);
                }
                (b',', false) => return Some(false),
                (b'}', true) | (b']', false) => containers.leave(),
                _ => return None,
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests;
