//! Which placement to take.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Spread;

/// A placement that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Bits a second.
    pub rate: Spread,
    /// CPU seconds of the receiving side for 10^9 bytes.
    pub cost: Spread,
}

/// Why a placement is recommended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum Why {
    /// No other was measured.
    Only,
    /// It is faster than every other one by more than the spread of its rounds.
    Fastest {
        /// By how much its median is above that of the next: 0.1 is 10 %.
        margin: f64,
    },
    /// Others are as fast, within the spread, and it takes less CPU than the fastest of them, by more
    /// than that spread.
    LeastCpu {
        /// How many placements are within the spread of the fastest, that one included.
        of: usize,
        /// How much less CPU it takes than the fastest: 0.1 is 10 %.
        saving: f64,
    },
    /// Others are as fast, within the spread, and none of them clearly takes less CPU; it has the
    /// highest median, which may be chance.
    NoDifference {
        /// How many placements cannot be told apart, this one included.
        of: usize,
    },
    /// Each was measured once, so nothing is known of the spread; it was the fastest that time.
    OneRound,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("no other was measured"),
            Self::Fastest { margin } => {
                write!(f, "the fastest, {:.0} % above the next", margin * 100.0)
            }
            Self::LeastCpu { of, saving } => write!(
                f,
                "{of} are within the spread of the fastest; it takes the least CPU of them, {:.0} % \
                 less than the fastest",
                saving * 100.0
            ),
            Self::NoDifference { of } => write!(
                f,
                "{of} are within the spread of the fastest, and none of them clearly takes less CPU: it \
                 has the highest median, which may be chance"
            ),
            Self::OneRound => {
                f.write_str("the fastest in the one round there was: the spread is not known")
            }
        }
    }
}

/// Chooses: the best rate, and of those that are within its spread, the least CPU. A placement is
/// within the spread of the fastest if its median is one that the fastest had in a round too, at
/// least.
#[must_use]
pub fn choose(candidates: &[Candidate], rounds: usize) -> Option<(usize, Why)> {
    let by_rate = |(_, a): &(usize, &Candidate), (_, b): &(usize, &Candidate)| {
        a.rate.median.total_cmp(&b.rate.median)
    };
    let all = || candidates.iter().enumerate();
    let (fastest, best) = all().max_by(by_rate)?;
    if candidates.len() == 1 {
        return Some((fastest, Why::Only));
    }
    if rounds < 2 {
        return Some((fastest, Why::OneRound));
    }
    let within: Vec<(usize, &Candidate)> =
        all().filter(|(_, candidate)| candidate.rate.median >= best.rate.min).collect();
    if within.len() == 1 {
        let next = all().filter(|(n, _)| *n != fastest).max_by(by_rate)?.1;
        let margin = best.rate.median / next.rate.median - 1.0;
        return Some((fastest, Why::Fastest { margin }));
    }
    let of = within.len();
    let cheaper = within.into_iter().filter(|(_, candidate)| candidate.cost.max < best.cost.min);
    let least = cheaper.min_by(|(_, a), (_, b)| a.cost.median.total_cmp(&b.cost.median));
    Some(match least {
        Some((n, least)) => {
            let saving = 1.0 - least.cost.median / best.cost.median;
            (n, Why::LeastCpu { of, saving })
        }
        None => (fastest, Why::NoDifference { of }),
    })
}

/// Of placements that were measured under several conditions, the one that loses least against the
/// best where it loses most. `rates` has a row for each condition and in it a rate for each placement,
/// where there is one; placements that lack one are left out.
#[must_use]
pub fn robust(rates: &[Vec<Option<f64>>]) -> Option<usize> {
    let placements = rates.iter().map(Vec::len).max()?;
    let worst = |placement: usize| {
        let shares = rates.iter().map(|row| {
            let best = row.iter().flatten().copied().fold(0.0, f64::max);
            Some(row.get(placement).copied().flatten()? / best)
        });
        shares.collect::<Option<Vec<f64>>>()?.into_iter().min_by(f64::total_cmp)
    };
    let all = (0..placements).filter_map(|placement| Some((placement, worst(placement)?)));
    all.filter(|(_, share)| share.is_finite())
        // The first of equals, as placements come in the order of their simplicity.
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(placement, _)| placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(rate: [f64; 3], cost: [f64; 3]) -> Candidate {
        let spread = |[min, median, max]: [f64; 3]| Spread { median, min, max };
        Candidate { rate: spread(rate), cost: spread(cost) }
    }

    #[test]
    fn the_fastest_wins_where_it_is_clear() {
        let candidates = [
            candidate([7.0, 8.0, 8.5], [0.1, 0.1, 0.1]),
            candidate([9.5, 10.0, 10.5], [0.9, 0.9, 0.9]),
            candidate([5.0, 6.0, 9.9], [0.2, 0.2, 0.2]),
        ];
        let (n, why) = choose(&candidates, 3).expect("candidates");
        assert_eq!((n, why), (1, Why::Fastest { margin: 0.25 }));
        assert_eq!(why.to_string(), "the fastest, 25 % above the next");
    }

    #[test]
    fn within_the_spread_the_least_cpu_wins() {
        let candidates = [
            candidate([9.0, 10.0, 10.5], [0.9, 1.0, 1.1]),
            candidate([8.9, 9.5, 9.8], [0.55, 0.6, 0.65]),
            candidate([8.9, 9.9, 9.9], [0.7, 0.75, 0.8]),
            // Cheapest of all, and out of the spread.
            candidate([8.0, 8.5, 8.9], [0.1, 0.1, 0.1]),
        ];
        let (n, why) = choose(&candidates, 3).expect("candidates");
        assert_eq!((n, why), (1, Why::LeastCpu { of: 3, saving: 0.4 }));
        assert!(why.to_string().contains("40 % less"), "{why}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_said_to_be_so() {
        let near = candidate([9.0, 9.9, 10.4], [0.8, 0.95, 1.2]);
        let best = candidate([9.0, 10.0, 10.5], [0.9, 1.0, 1.1]);
        let (n, why) = choose(&[near, best], 5).expect("candidates");
        assert_eq!((n, why), (1, Why::NoDifference { of: 2 }));
        assert!(why.to_string().contains("chance"), "{why}");
        // Nor does a fastest that is the cheapest too prove anything by that.
        let dear = candidate([9.0, 9.9, 10.4], [1.8, 1.95, 2.2]);
        assert_eq!(choose(&[dear, best], 5), Some((1, Why::NoDifference { of: 2 })));
    }

    #[test]
    fn one_placement_or_one_round_are_no_comparison() {
        let one = candidate([9.0, 9.0, 9.0], [1.0, 1.0, 1.0]);
        let other = candidate([5.0, 5.0, 5.0], [1.0, 1.0, 1.0]);
        assert_eq!(choose(&[], 3), None);
        assert_eq!(choose(&[one], 3), Some((0, Why::Only)));
        assert_eq!(choose(&[other, one], 1), Some((1, Why::OneRound)));
    }

    #[test]
    fn the_robust_placement_loses_least_where_it_loses_most() {
        // The first is best once and bad once; the second never far off; the third was not always
        // measured.
        let rates = [
            vec![Some(10.0), Some(9.0), Some(9.9)],
            vec![Some(5.0), Some(9.5), None],
            vec![Some(9.0), Some(9.0), Some(10.0)],
        ];
        assert_eq!(robust(&rates), Some(1));
        assert_eq!(robust(&[vec![Some(1.0), Some(1.0)]]), Some(0));
        assert_eq!(robust(&[vec![None], vec![Some(1.0)]]), None);
        assert_eq!(robust(&[]), None);
    }
}
