//! Choices, read from the bytes of an input one by one. Where the input ends, all are 0.

use arbitrary::Unstructured;

pub(super) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// One of `0..n`.
    pub(super) fn below(&mut self, n: u8) -> u8 {
        self.byte() % n
    }

    pub(super) fn word(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Up to `most` bytes.
    pub(super) fn bytes(&mut self, most: u8) -> &'a [u8] {
        let len = usize::from(self.below(most + 1)).min(self.0.len());
        self.0.bytes(len).unwrap_or_default()
    }
}
