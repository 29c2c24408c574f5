//! Bytes as choices: whatever they are, they mean something, and when they end everything is the first
//! choice.

/// The bytes that are left.
pub struct Input<'d>(&'d [u8]);

impl<'d> Input<'d> {
    /// All of them.
    pub fn new(data: &'d [u8]) -> Self {
        Self(data)
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `end`, which is from 1 to 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}
