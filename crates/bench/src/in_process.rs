//! A client of a deployment within this process.
//!
//! The workloads whose operation is one request measure it through this.

use std::hint::black_box;

use lockstep_engine::PreparedRequest;
use lockstep_row::{Arena, Datum};

use crate::{cell::Cell, error::Result, system::Client};

/// Sends requests, whose values lie ready, to a deployment.
pub(crate) struct InProcess<'a, R> {
    request: &'a PreparedRequest,
    requests: Vec<R>,
    arena: Arena,
}

impl<'a, R: AsRef<[Datum<'a>]>> InProcess<'a, R> {
    /// A client with these requests.
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

    fn answer(&mut self, request: usize) -> Result<Vec<Cell>> {
        self.arena.reset();
        let answer = self.request.answer(self.requests[request].as_ref(), &self.arena)?;
        Ok(answer.unwrap_or_default().iter().map(Cell::from).collect())
    }
}
