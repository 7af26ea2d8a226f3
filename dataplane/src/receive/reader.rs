//! The reader's side of a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::seq::StreamOffset;

use super::books::{Cursor, Failure};
use super::mapping::Mapping;
use super::ring::Ring;

/// The one reader of a ring: it sees the stream in order, and reads it in place.
///
/// # Sleeping
///
/// [`wait`](Self::wait) blocks. A program with a loop of its own polls the descriptor
/// ([`AsFd`]): it is readable as long as there is data, the end or a failure to be had, from the
/// time on at which the program last found nothing. To find nothing is to be told `false` by
/// [`arm`](Self::arm), and only then may it sleep.
#[derive(Debug)]
pub struct Reader {
    cursor: Cursor<Arc<Mapping>>,
    ring: Arc<Ring>,
}

/// What came of [`Reader::consume`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a peer that ran out of window waits for the update"]
pub struct Consumed {
    /// The window has opened so far that the peer should be told by an acknowledgement of its own
    /// (RFC 8684, section 3.3.5; RFC 9293, section 3.8.6.2.2). It is said once for each such step.
    pub window_update_due: bool,
}

impl Reader {
    pub(super) fn new(ring: Arc<Ring>) -> Self {
        Self { cursor: Cursor::new(ring.books()), ring }
    }

    /// The ring that this reads.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// How far this reader is in the stream.
    #[must_use]
    pub fn position(&self) -> StreamOffset {
        StreamOffset(self.cursor.consumed())
    }

    /// How many bytes [`peek`](Self::peek) would give.
    #[must_use]
    pub fn available(&self) -> usize {
        // No more than a capacity, which is a usize.
        (self.ring.books().edge() - self.cursor.consumed()) as usize
    }

    /// Everything that is in order, as one slice; it is empty if there is nothing.
    ///
    /// Workers go on placing data elsewhere in the ring meanwhile.
    pub fn peek(&mut self) -> &[u8] {
        self.cursor.refresh(self.ring.books());
        let (range, memory) = self.cursor.readable();
        // SAFETY: The range is committed, and its copies happened before the edge was published. It
        // is no longer than the capacity, as the window is not. Nobody writes it while the slice
        // lives: its offsets are claimed no more, and its places come free only by `consume`, which
        // needs this borrow to be over. If the ring moves to another memory, this one stays as it
        // is; the cursor keeps it mapped.
        unsafe { memory.bytes(range.start, (range.end - range.start) as usize) }
    }

    /// Gives the first `n` bytes back.
    ///
    /// # Panics
    ///
    /// If the last [`peek`](Self::peek) gave fewer than `n` bytes, less those consumed since.
    pub fn consume(&mut self, n: usize) -> Consumed {
        let (range, _) = self.cursor.readable();
        assert!(n as u64 <= range.end - range.start, "consumed more than was there");
        if n == 0 {
            return Consumed { window_update_due: false };
        }
        Consumed { window_update_due: self.cursor.consume(self.ring.books(), n as u64) }
    }

    /// Whether the stream has ended and all of it was consumed.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.cursor.is_end(self.ring.books())
    }

    /// Why no more data will come, if the stream failed. What is in order may be read all the same.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.ring.failure()
    }

    /// Whether there is anything to be had: data, the end or a failure.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.cursor.is_ready(self.ring.books())
    }

    /// Sees to it that the descriptor becomes readable when there is something to be had. Returns
    /// whether there is already.
    pub fn arm(&mut self) -> bool {
        let books = self.ring.books();
        books.bell().arm(|| self.cursor.is_ready(books))
    }

    /// Sleeps until there is something to be had, for at most `timeout`; `None` is for ever.
    /// Returns whether there is.
    ///
    /// # Errors
    ///
    /// [`Interrupted`](io::ErrorKind::Interrupted) if a signal was handled meanwhile.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let deadline = timeout.and_then(|t| std::time::Instant::now().checked_add(t));
        while !self.arm() {
            let left = deadline.map(|d| d.saturating_duration_since(std::time::Instant::now()));
            if !self.ring.books().bell().sleep(left)? {
                return Ok(self.is_ready());
            }
        }
        Ok(true)
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.books().bell().as_fd()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cursor.leave(self.ring.books());
    }
}
