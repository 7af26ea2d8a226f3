//! The sender of a measurement: a process in the lab, or one on another host.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{Ended, Running};
use crate::remote::Job;
use crate::traffic::sender::{Connection, Report};

/// A sender at work.
#[derive(Debug)]
pub(super) enum Sending {
    /// In the lab.
    Process(Running),
    /// On another host.
    Remote(Job),
}

impl Sending {
    /// Waits until it says so; what failed before that is the error.
    pub(super) fn wait_for(
        self,
        text: &str,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        match self {
            Self::Process(mut running) => match running.wait_for(text, limit, interrupt) {
                Ok(()) => Ok(Self::Process(running)),
                Err(error) => {
                    interrupt.check()?;
                    // One that failed has said why in its report.
                    let ended = running.wait(limit, interrupt)?;
                    Err(failure(&ended).unwrap_or(error))
                }
            },
            Self::Remote(mut job) => {
                job.wait_for(text, limit, interrupt)?;
                Ok(Self::Remote(job))
            }
        }
    }

    /// Waits until its only connection is over, and returns what it says of that.
    pub(super) fn finish(self, limit: Duration, interrupt: &Interrupt) -> Result<Connection> {
        let report = match self {
            Self::Process(running) => {
                let ended = running.wait(limit, interrupt)?;
                if let Some(error) = failure(&ended) {
                    return Err(error);
                }
                ended.success()?.json()?
            }
            Self::Remote(job) => job.finish(limit, interrupt)?,
        };
        if let Some(error) = error_in(&report) {
            return Err(error);
        }
        <[Connection; 1]>::try_from(report.connections)
            .map(|[connection]| connection)
            .map_err(|_| Error::Failed("the sender had more than one connection".into()))
    }
}

/// Why a sender's connection failed, if it did.
fn failure(ended: &Ended) -> Option<Error> {
    error_in(&ended.json().ok()?)
}

fn error_in(report: &Report) -> Option<Error> {
    let why = report.connections.iter().find_map(|connection| connection.error.as_ref())?;
    Some(Error::failed("sending", why))
}
