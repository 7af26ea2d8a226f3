//! The deadlines of a worker's flows: a heap that forgets lazily.
//!
//! A deadline that moves later, as that of a busy flow does with every burst, costs nothing: its
//! entry stays where it is, and is put back with the flow's real deadline once it comes to the
//! top. Only a deadline that moves earlier adds an entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mpxdp_proto::time::Instant;

use super::flows::FlowId;

/// When a flow wants to be called, and what the heap knows about it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deadline {
    /// When the flow wants to be called.
    wanted: Option<Instant>,
    /// The earliest of the flow's entries in the heap.
    queued: Option<Instant>,
}

/// The deadlines of all flows of a worker.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, FlowId)>>,
}

impl Timers {
    /// Sets or clears the deadline of `flow`.
    pub(super) fn set(&mut self, flow: FlowId, deadline: &mut Deadline, at: Option<Instant>) {
        deadline.wanted = at;
        if let Some(at) = at
            && deadline.queued.is_none_or(|queued| at < queued)
        {
            deadline.queued = Some(at);
            self.heap.push(Reverse((at, flow)));
        }
    }

    /// Takes one entry whose time has come: the flow may be due, which
    /// [`is_due`](Self::is_due) says.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, FlowId)> {
        let &Reverse((at, flow)) = self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some((at, flow))
    }

    /// Whether the deadline of `flow` has come, given an entry that was taken; clears it then.
    pub(super) fn is_due(
        &mut self,
        (at, flow): (Instant, FlowId),
        deadline: &mut Deadline,
        now: Instant,
    ) -> bool {
        if deadline.queued != Some(at) {
            // An earlier entry of the same flow came first and left this one behind.
            return false;
        }
        deadline.queued = None;
        match deadline.wanted {
            Some(wanted) if wanted <= now => {
                deadline.wanted = None;
                true
            }
            wanted => {
                self.set(flow, deadline, wanted);
                false
            }
        }
    }

    /// A time before which no deadline comes; it may be earlier than the first of them.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|&Reverse((at, _))| at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Set(usize, Option<u64>),
        Forget(usize),
        Advance(u64),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        prop::collection::vec(
            prop_oneof![
                (0..6_usize, prop::option::of(0..200_u64)).prop_map(|(f, at)| Op::Set(f, at)),
                (0..6_usize).prop_map(Op::Forget),
                (0..40_u64).prop_map(Op::Advance),
            ],
            1..120,
        )
    }

    proptest! {
        /// Each deadline comes once, in the first look at the heap after it, whatever was set
        /// and cleared before.
        #[test]
        fn deadlines_come_when_they_were_last_set_to(ops in ops()) {
            let id = |n: usize| FlowId::new(n as u32, 0);
            let mut timers = Timers::default();
            let mut flows: Vec<Option<Deadline>> = vec![Some(Deadline::default()); 6];
            let mut model: BTreeMap<usize, u64> = BTreeMap::new();
            let mut now = 0;
            for op in ops {
                match op {
                    Op::Set(flow, at) => {
                        if let Some(deadline) = &mut flows[flow] {
                            timers.set(id(flow), deadline, at.map(Instant));
                            match at {
                                Some(at) => model.insert(flow, at),
                                None => model.remove(&flow),
                            };
                        }
                    }
                    Op::Forget(flow) => {
                        flows[flow] = None;
                        model.remove(&flow);
                    }
                    Op::Advance(by) => {
                        now += by;
                        let mut came = Vec::new();
                        while let Some(entry) = timers.pop(Instant(now)) {
                            let flow = entry.1.index();
                            if let Some(deadline) = &mut flows[flow]
                                && timers.is_due(entry, deadline, Instant(now))
                            {
                                came.push(flow);
                            }
                        }
                        came.sort_unstable();
                        let due: Vec<usize> = model
                            .iter()
                            .filter(|&(_, &at)| at <= now)
                            .map(|(&flow, _)| flow)
                            .collect();
                        prop_assert_eq!(&came, &due);
                        model.retain(|_, at| *at > now);
                        if let Some(&first) = model.values().min() {
                            prop_assert!(timers.next().is_some_and(|at| at.0 <= first));
                        }
                    }
                }
            }
        }
    }
}
