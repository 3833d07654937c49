//! A client of a deployment within this process.
//!
//! Used by the workloads whose operation is one request.

use std::hint::black_box;

use lockstep_engine::PreparedRequest;
use lockstep_row::{Arena, Datum};

use crate::{answer::AnswerValue, error::Result, system::Client};

/// A client that sends prepared request rows to a deployment.
pub(crate) struct InProcess<'a, R> {
    request: &'a PreparedRequest,
    requests: Vec<R>,
    arena: Arena,
}

impl<'a, R: AsRef<[Datum<'a>]>> InProcess<'a, R> {
    /// Creates a client with the given requests.
    pub(crate) fn new(request: &'a PreparedRequest, requests: Vec<R>) -> Self {
        Self { request, requests, arena: Arena::new() }
    }
}

impl<'a, R: AsRef<[Datum<'a>]>> Client for InProcess<'a, R> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.arena.reset();
        black_box(self.request.answer(self.requests[request].as_ref(), &self.arena)?);
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.arena.reset();
        let answer = self.request.answer(self.requests[request].as_ref(), &self.arena)?;
        Ok(answer.unwrap_or_default().iter().map(AnswerValue::from).collect())
    }
}
