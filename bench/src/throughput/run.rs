//! The measuring.

use super::above;
use super::plan::{Case, Plan, expected};
use crate::document::{Document, FrontEndRow, NotRun, Ratio, Round, Row, Tried};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::measure::Spread;
use crate::progress::Progress;
use crate::trial::{
    Bench, FrontEnd, FrontEndRound, Outcome, Place, Programs, Receiver, Trial, order,
};

/// A case at a place, and what was measured of it.
#[derive(Debug)]
struct Item {
    case: Case,
    trial: Trial,
    best: bool,
    tried: Vec<Tried>,
    outcomes: Vec<Outcome>,
    /// Why it is not measured any more.
    failed: Option<String>,
}

/// Measures all of a plan into a document. True if all went well; what failed is in `not_run`, and
/// after a signal `interrupted` is set.
///
/// # Errors
///
/// If something is wrong that concerns all of it.
pub(super) fn run(
    plan: &Plan<'_>,
    programs: &Programs,
    interrupt: &Interrupt,
    document: &mut Document,
) -> Result<bool> {
    let progress = Progress::new(plan.expected());
    document.not_run = plan.not_run();
    let planned = document.not_run.len();
    let ended = networks(plan, programs, interrupt, &progress, document);
    // Of what was measured, whatever came then.
    above::fill(document);
    document.ratios = ratios(&document.results);
    ended?;
    Ok(!document.interrupted && document.not_run.len() == planned)
}

/// Measures in one lab after the other, or between the hosts.
fn networks(
    plan: &Plan<'_>,
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &Progress,
    document: &mut Document,
) -> Result<()> {
    if let Some(hosts) = &plan.options.hosts {
        let bench = Bench::between_hosts(hosts, programs, interrupt);
        document.interrupted = one_network(plan, bench, progress, document)?;
    } else {
        for &mtu in &plan.options.mtus {
            progress.says(format!("MTU {mtu}: making the lab"));
            match plan.options.lab(mtu).interrupt(interrupt).up() {
                Ok(lab) => {
                    let bench = Bench::new(&lab, programs, interrupt);
                    document.interrupted = one_network(plan, bench, progress, document)?;
                    lab.remove()?;
                }
                Err(Error::Interrupted) => document.interrupted = true,
                Err(error) => return Err(error),
            }
            if document.interrupted {
                break;
            }
        }
    }
    Ok(())
}

/// Measures all cases of one MTU, and says whether a signal came.
fn one_network(
    plan: &Plan<'_>,
    mut bench: Bench<'_>,
    progress: &Progress,
    document: &mut Document,
) -> Result<bool> {
    bench.describe(&mut document.environment);
    let bench = &mut bench;
    let mtu = bench.mtu();
    let mut items = Vec::new();
    let mut interrupted = false;
    for case in plan.cases() {
        match choose(plan, case, bench, progress) {
            Ok(item) => items.push(item),
            Err(_) if bench.interrupt.is_set() => {
                interrupted = true;
                break;
            }
            Err(error @ (Error::Usage(_) | Error::Missing(_))) => return Err(error),
            Err(error) => {
                let (what, reason) = (format!("{case}, MTU {mtu}"), error.to_string());
                document.not_run.push(NotRun { what, reason });
            }
        }
    }
    if plan.placement.is_none() {
        let alike = alike(plan, &items);
        alike.iter().for_each(|item| progress.more(plan.all_rounds(&item.trial)));
        items.extend(alike);
    }
    let mut front_ends = front_ends(plan, &items);
    let ended = if interrupted {
        Ok(true)
    } else {
        rounds(plan, bench, progress, &mut items, &mut front_ends)
    };
    for front_end in &front_ends {
        if let Some(reason) = front_end.failed.clone() {
            let what = format!("{}, MTU {mtu}", front_end.what.name());
            document.not_run.push(NotRun { what, reason });
        }
    }
    document.front_ends.extend(front_ends.iter().filter_map(|one| one.row(plan, mtu)));
    for Item { case, trial, failed, .. } in &items {
        if let Some(reason) = failed.clone() {
            let what = format!("{case}, MTU {mtu}, {}", plan.text(&trial.place));
            document.not_run.push(NotRun { what, reason });
        }
    }
    let measured = items.into_iter().filter(|item| !item.outcomes.is_empty());
    document.results.extend(measured.map(|item| row(plan, item, bench)));
    ended
}

/// Finds the best place of a case, by trying if there are several.
fn choose(plan: &Plan<'_>, case: Case, bench: &mut Bench<'_>, progress: &Progress) -> Result<Item> {
    let mtu = bench.mtu();
    let places = plan.places(case);
    let item = |place: &Place, tried| Item {
        case,
        trial: plan.trial(case, place),
        best: true,
        tried,
        outcomes: Vec::new(),
        failed: None,
    };
    if let [only] = &places[..] {
        return Ok(item(only, Vec::new()));
    }
    let mut tried = Vec::new();
    for place in &places {
        let text = plan.text(place);
        progress.says(format!("MTU {mtu}: {case}: is {text} its best place?"));
        let trial = plan.short_trial(case, place);
        let rate = bench.measure(&trial)?.round.bits_per_second;
        progress.did(expected(&trial));
        tried.push(Tried { placement: text, bits_per_second: rate });
    }
    let fastest = places
        .iter()
        .zip(&tried)
        .max_by(|(_, a), (_, b)| a.bits_per_second.total_cmp(&b.bits_per_second));
    let place = fastest.map(|(place, _)| place.clone());
    let place = place.ok_or_else(|| Error::Failed("no CPU to run on".into()))?;
    Ok(item(&place, tried))
}

/// The kernel's receivers at mpxdp's best place, where theirs is another one.
fn alike(plan: &Plan<'_>, items: &[Item]) -> Vec<Item> {
    let ours = |subflows| {
        let ours = Case { receiver: Receiver::Mpxdp, subflows };
        items.iter().find(|item| item.case == ours)
    };
    // A TCP connection is compared with mpxdp's single subflow.
    let pairs = items.iter().filter(|item| item.case.receiver != Receiver::Mpxdp);
    let pairs = pairs.filter_map(|item| Some((item, ours(item.case.subflows)?)));
    let others = pairs.filter_map(|(item, ours)| {
        let place = ours.trial.place.of(item.case.receiver);
        (place != item.trial.place).then(|| Item {
            case: item.case,
            trial: plan.trial(item.case, &place),
            best: false,
            tried: Vec::new(),
            outcomes: Vec::new(),
            failed: None,
        })
    });
    others.collect()
}

/// A front end at a place, and what was measured of it.
#[derive(Debug)]
struct FrontEndItem {
    what: FrontEnd,
    place: Place,
    rounds: Vec<FrontEndRound>,
    failed: Option<String>,
}

impl FrontEndItem {
    fn row(&self, plan: &Plan<'_>, mtu: u32) -> Option<FrontEndRow> {
        let per_packet = Spread::of(self.rounds.iter().map(|r| r.nanoseconds_per_packet))?;
        let payload = self.rounds.first()?.payload;
        Some(FrontEndRow {
            front_end: self.what.name().into(),
            mtu,
            placement: plan.text(&self.place),
            seconds: plan.front_end_time().as_secs_f64(),
            rounds: self.rounds.len(),
            packets_per_second: Spread::of(self.rounds.iter().map(|r| r.packets_per_second))?,
            nanoseconds_per_packet: per_packet,
            nanoseconds_per_byte: per_packet.median / f64::from(payload),
        })
    }
}

/// The front ends, at the places where mpxdp is measured; without it, where the others are.
fn front_ends(plan: &Plan<'_>, items: &[Item]) -> Vec<FrontEndItem> {
    let first = items.iter().find(|item| item.case.receiver == Receiver::Mpxdp);
    let Some(place) = first.or_else(|| items.first()).map(|item| &item.trial.place) else {
        return Vec::new();
    };
    let all = FrontEnd::ALL.iter().filter(|_| plan.with_front_ends());
    let item =
        |&what| FrontEndItem { what, place: place.clone(), rounds: Vec::new(), failed: None };
    all.map(item).collect()
}

/// Measures all items in turns, and says whether a signal came.
fn rounds(
    plan: &Plan<'_>,
    bench: &mut Bench<'_>,
    progress: &Progress,
    items: &mut [Item],
    front_ends: &mut [FrontEndItem],
) -> Result<bool> {
    let mtu = bench.mtu();
    let indices: Vec<usize> = (0..items.len()).collect();
    for round in 0..plan.options.rounds {
        for index in order(&indices, round) {
            let item = &mut items[index];
            if item.failed.is_some() {
                continue;
            }
            let of = plan.options.rounds;
            progress.says(format!("MTU {mtu}: round {} of {of}: {}", round + 1, item.case));
            match bench.measure(&item.trial) {
                Ok(outcome) => item.outcomes.push(outcome),
                // A terminal's signal ends the processes of the measurement too.
                Err(_) if bench.interrupt.is_set() => return Ok(true),
                Err(error @ (Error::Usage(_) | Error::Missing(_))) => return Err(error),
                Err(error) => item.failed = Some(error.to_string()),
            }
            progress.did(expected(&item.trial));
        }
        for item in front_ends.iter_mut().filter(|item| item.failed.is_none()) {
            progress.says(format!("MTU {mtu}: {} without a receiver", item.what.name()));
            match bench.front_end(item.what, &item.place, plan.front_end_time()) {
                Ok(round) => item.rounds.push(round),
                Err(_) if bench.interrupt.is_set() => return Ok(true),
                Err(error @ (Error::Usage(_) | Error::Missing(_))) => return Err(error),
                Err(error) => item.failed = Some(error.to_string()),
            }
        }
        progress.did(plan.front_ends());
    }
    Ok(false)
}

fn row(plan: &Plan<'_>, item: Item, bench: &Bench<'_>) -> Row {
    let Item { case, trial, best, tried, outcomes, .. } = item;
    let first = outcomes.first();
    let row = Row {
        benchmark: "throughput".into(),
        receiver: case.receiver.name().into(),
        mtu: bench.mtu(),
        subflows: case.subflows,
        links: bench.links(),
        placement: plan.text(&trial.place),
        best,
        mode: first.map(|outcome| outcome.mode.clone()).unwrap_or_default(),
        zero_copy: first.and_then(|outcome| outcome.zero_copy),
        mptcp: outcomes.iter().all(|outcome| outcome.mptcp),
        seconds: trial.time.as_secs_f64(),
        warmup_seconds: trial.warmup.as_secs_f64(),
        tried,
        ..Row::default()
    };
    let rounds: Vec<Round> = outcomes.into_iter().map(|outcome| outcome.round).collect();
    row.with_rounds(rounds)
}

/// mpxdp against each of the kernel's receivers, and each against the kernel's MPTCP behind the front
/// end: at their best places, and at the same one. Then several subflows against one, at the same
/// place.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let ours = Receiver::Mpxdp.name();
    let reference = Receiver::KernelMptcpXdp.name();
    let mut ratios = Vec::new();
    for of in rows {
        for against in rows.iter().filter(|row| row.mtu == of.mtu && row.receiver != of.receiver) {
            let wanted = of.receiver == ours || against.receiver == reference;
            if !wanted || of.subflows != against.subflows {
                continue;
            }
            if of.best && against.best {
                ratios.extend(of.against(against, "best"));
            }
            if above::common(&of.placement) == above::common(&against.placement) {
                // Named by the one that says more: mpxdp's has a worker.
                let placement = [&of.placement, &against.placement].into_iter();
                let longest = placement.max_by_key(|text| text.len());
                ratios.extend(longest.and_then(|placement| of.against(against, placement)));
            }
        }
        let one = rows.iter().find(|row| {
            let same = (row.mtu, &row.receiver, &row.placement);
            row.subflows == 1 && of.subflows > 1 && same == (of.mtu, &of.receiver, &of.placement)
        });
        let ratio = one.and_then(|one| of.against(one, &of.placement));
        ratios.extend(ratio.map(|ratio| Ratio { against_subflows: Some(1), ..ratio }));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(receiver: Receiver, subflows: u32, placement: &str, best: bool, rate: f64) -> Row {
        let round = Round { bits_per_second: rate, ..Round::default() };
        let row = Row {
            receiver: receiver.name().into(),
            mtu: 1500,
            subflows,
            placement: placement.into(),
            best,
            ..Row::default()
        };
        row.with_rounds(vec![round])
    }

    fn found(ratios: &[Ratio]) -> Vec<(&str, &str, u32, &str, f64)> {
        let found = ratios.iter().map(|ratio| {
            let Ratio { of, against, subflows, placement, median, .. } = ratio;
            (of.as_str(), against.as_str(), *subflows, placement.as_str(), *median)
        });
        found.collect()
    }

    #[test]
    fn best_is_compared_with_best_and_like_with_like() {
        let (ours, kernel) = ("napi=1 worker=1 reader=1", "napi=sender reader=1");
        let rows = [
            row(Receiver::Mpxdp, 1, ours, true, 6.0),
            row(Receiver::KernelMptcpXdp, 1, kernel, true, 3.0),
            row(Receiver::KernelMptcpXdp, 1, "napi=1 reader=1", false, 2.0),
        ];
        let expected = [
            ("mpxdp", "kernel-mptcp-xdp", 1, "best", 2.0),
            ("mpxdp", "kernel-mptcp-xdp", 1, ours, 3.0),
        ];
        assert_eq!(found(&ratios(&rows)), expected);
    }

    #[test]
    fn several_subflows_are_compared_with_one_at_the_same_place() {
        let (here, there) = ("napi=sender worker=1 reader=1", "napi=1 worker=1 reader=1");
        let rows = [
            row(Receiver::Mpxdp, 1, here, true, 4.0),
            row(Receiver::Mpxdp, 2, here, true, 3.0),
            row(Receiver::Mpxdp, 4, there, true, 5.0),
        ];
        let ratios = ratios(&rows);
        assert_eq!(found(&ratios), [("mpxdp", "mpxdp", 2, here, 0.75)]);
        assert_eq!(ratios[0].against_subflows, Some(1));
    }
}
