//! TCP options: MSS, window scale, SACK, timestamps, and the way into those of MPTCP.

use super::EmitError;
use super::mptcp;
use crate::segment::{Flags, Options, SackBlock, Timestamps, WindowScale};
use crate::seq::SeqNum;

/// Octets of option space in a TCP header.
pub const MAX_LEN: usize = 40;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

const MSS_LEN: usize = 4;
const WINDOW_SCALE_LEN: usize = 3;
const SACK_PERMITTED_LEN: usize = 2;
const TIMESTAMPS_LEN: usize = 10;
const SACK_BLOCK_LEN: usize = 8;

/// Parses the options of a segment with the control bits `flags`.
///
/// Nothing here is an error (RFC 9293, section 3.1, MUST-7): an option of an unknown kind or of a
/// wrong length is skipped, and a list whose lengths do not add up counts as far as it goes. Of an
/// option that comes twice the first counts. MSS, window scale and SACK-permitted count in a
/// segment with SYN only (RFC 9293, section 3.7.1; RFC 7323, section 2.2; RFC 2018, section 2).
/// For what makes an MPTCP option count see [`mptcp`].
#[inline]
#[must_use]
pub fn parse(bytes: &[u8], flags: Flags) -> Options {
    let mut options = Options::default();
    parse_into(bytes, flags, &mut options);
    options
}

/// As [`parse`], into `options`, whatever they were.
#[inline]
pub(super) fn parse_into(bytes: &[u8], flags: Flags, options: &mut Options) {
    *options = Options::default();
    let mut rest = bytes;
    // Nearly every segment of a connection with timestamps starts like this.
    if let Some((&[NOP, NOP, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3], behind)) =
        bytes.split_first_chunk()
    {
        options.timestamps = Some(Timestamps {
            value: u32::from_be_bytes([v0, v1, v2, v3]),
            echo: u32::from_be_bytes([e0, e1, e2, e3]),
        });
        rest = behind;
    }
    while let [kind, tail @ ..] = rest {
        match *kind {
            END => break,
            NOP => {
                rest = tail;
                continue;
            }
            _ => {}
        }
        let Some(len) = tail.first() else { break };
        let Some((option, behind)) = rest.split_at_checked(usize::from(*len)) else { break };
        let Some(body) = option.get(2..) else { break };
        if *kind == mptcp::KIND {
            mptcp::parse(body, flags, &mut options.mptcp);
        } else {
            parse_plain(*kind, body, flags, options);
        }
        rest = behind;
    }
}

fn parse_plain(kind: u8, body: &[u8], flags: Flags, options: &mut Options) {
    let syn = flags.contains(Flags::SYN);
    match (kind, body) {
        (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
            options.timestamps.get_or_insert_with(|| Timestamps {
                value: u32::from_be_bytes([v0, v1, v2, v3]),
                echo: u32::from_be_bytes([e0, e1, e2, e3]),
            });
        }
        (SACK, blocks) => {
            let (blocks, odd) = blocks.as_chunks::<SACK_BLOCK_LEN>();
            if odd.is_empty() && options.sack.as_slice().is_empty() {
                for &[s0, s1, s2, s3, e0, e1, e2, e3] in blocks {
                    options.sack.push(SackBlock {
                        start: SeqNum(u32::from_be_bytes([s0, s1, s2, s3])),
                        end: SeqNum(u32::from_be_bytes([e0, e1, e2, e3])),
                    });
                }
            }
        }
        (MSS, &[a, b]) if syn => {
            options.mss.get_or_insert_with(|| u16::from_be_bytes([a, b]));
        }
        (WINDOW_SCALE, &[shift]) if syn => {
            options.window_scale.get_or_insert_with(|| WindowScale::new(shift));
        }
        (SACK_PERMITTED, []) if syn => options.sack_permitted = true,
        _ => {}
    }
}

/// How options lie in the header.
struct Layout {
    /// Octets, a multiple of four; more than [`MAX_LEN`] if they do not fit.
    len: usize,
    /// The SACK blocks that are written.
    blocks: usize,
    /// Whether each option starts at a multiple of four octets, or all are packed.
    aligned: bool,
}

impl Layout {
    /// Aligned options if they fit, since that is what every other stack sends; packed ones if
    /// only so they fit, or only so all SACK blocks fit that can.
    fn of(options: &Options) -> Self {
        let Options { mss, window_scale, sack_permitted, timestamps, sack, mptcp } = options;
        let mut packed = 0;
        let mut aligned = 0;
        let mut add = |present: bool, len: usize| {
            if present {
                packed += len;
                aligned += len.next_multiple_of(4);
            }
        };
        add(mss.is_some(), MSS_LEN);
        add(window_scale.is_some(), WINDOW_SCALE_LEN);
        // SACK-permitted goes where the timestamps' padding would be.
        match (*sack_permitted, timestamps.is_some()) {
            (true, true) => add(true, SACK_PERMITTED_LEN + TIMESTAMPS_LEN),
            (permitted, stamped) => {
                add(permitted, SACK_PERMITTED_LEN);
                add(stamped, TIMESTAMPS_LEN);
            }
        }
        mptcp::for_each_len(mptcp, |len| add(true, len));

        let room = MAX_LEN.saturating_sub(packed + 2) / SACK_BLOCK_LEN;
        let blocks = sack.as_slice().len().min(room);
        if blocks > 0 {
            packed += 2 + SACK_BLOCK_LEN * blocks;
            aligned += 4 + SACK_BLOCK_LEN * blocks;
        }
        if aligned <= MAX_LEN {
            Self { len: aligned, blocks, aligned: true }
        } else {
            Self { len: packed.next_multiple_of(4), blocks, aligned: false }
        }
    }
}

/// Octets that [`emit`] takes for `options`, a multiple of four. It is more than [`MAX_LEN`] if
/// they do not fit; SACK blocks never make it so, because those that do not fit are left out.
#[must_use]
pub fn options_len(options: &Options) -> usize {
    Layout::of(options).len
}

/// How many SACK blocks fit beside the other options of `options`, 0 ..= 4, whatever blocks it
/// has already.
#[must_use]
pub fn sack_room(options: &Options) -> usize {
    let mut full = Options { sack: Default::default(), ..*options };
    while full.sack.push(SackBlock::default()) {}
    Layout::of(&full).blocks
}

/// Writes `options` to the start of `buf`, padded to a multiple of four octets with NOPs, and gives
/// their length, which is [`options_len`]. SACK blocks that do not fit are left out, the last ones
/// first.
///
/// # Errors
///
/// [`EmitError::OptionsTooLong`] if they take more than 40 octets, and
/// [`EmitError::BufferTooSmall`] if `buf` has no room for them.
pub fn emit(options: &Options, buf: &mut [u8]) -> Result<usize, EmitError> {
    let Layout { len, blocks, aligned } = Layout::of(options);
    if len > MAX_LEN {
        return Err(EmitError::OptionsTooLong);
    }
    let buf = buf.get_mut(..len).ok_or(EmitError::BufferTooSmall)?;
    buf.fill(NOP);
    let mut out = Writer { buf, at: 0, aligned };
    let Options { mss, window_scale, sack_permitted, timestamps, sack, mptcp } = options;
    if let Some(mss) = mss {
        out.pad_before(MSS_LEN);
        out.put(&[MSS, MSS_LEN as u8]);
        out.put(&mss.to_be_bytes());
    }
    if *sack_permitted {
        out.pad_before(SACK_PERMITTED_LEN + timestamps.map_or(0, |_| TIMESTAMPS_LEN));
        out.put(&[SACK_PERMITTED, SACK_PERMITTED_LEN as u8]);
    }
    if let Some(Timestamps { value, echo }) = timestamps {
        if !*sack_permitted {
            out.pad_before(TIMESTAMPS_LEN);
        }
        out.put(&[TIMESTAMPS, TIMESTAMPS_LEN as u8]);
        out.put(&value.to_be_bytes());
        out.put(&echo.to_be_bytes());
    }
    if let Some(scale) = window_scale {
        out.pad_before(WINDOW_SCALE_LEN);
        out.put(&[WINDOW_SCALE, WINDOW_SCALE_LEN as u8, scale.shift()]);
    }
    if blocks > 0 {
        let sack_len = 2 + SACK_BLOCK_LEN * blocks;
        out.pad_before(sack_len);
        out.put(&[SACK, sack_len as u8]);
        for SackBlock { start, end } in &sack.as_slice()[..blocks] {
            out.put(&start.0.to_be_bytes());
            out.put(&end.0.to_be_bytes());
        }
    }
    mptcp::emit(mptcp, &mut out);
    debug_assert!(out.at.next_multiple_of(4) == len, "the layout and the writer disagree");
    Ok(len)
}

/// Writes options one behind the other into space that was filled with NOPs.
pub(super) struct Writer<'a> {
    buf: &'a mut [u8],
    at: usize,
    aligned: bool,
}

impl Writer<'_> {
    /// Writes `bytes`; the layout has made sure that there is room.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.buf[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Puts the padding of an option of `len` octets before it, as is the custom for the options
    /// of plain TCP, so that their values lie on multiples of four.
    fn pad_before(&mut self, len: usize) {
        if self.aligned {
            self.at += len.next_multiple_of(4) - len;
        }
    }

    /// Puts the padding of the option just written behind it, as is the custom for MPTCP.
    pub(super) fn pad_behind(&mut self) {
        if self.aligned {
            self.at = self.at.next_multiple_of(4);
        }
    }
}
