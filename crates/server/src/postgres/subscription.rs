//! SUBSCRIBE: the rows of a table or a stream as they are appended. The statement ends when the client cancels it, or
//! with an error; in the extended protocol a client may take the rows in parts.

use std::{sync::Arc, time::Duration};

use lockstep_diagnostic::Diagnostic;
use lockstep_engine::{Session, Subscription, is_subscription};
use lockstep_host::QueryContext;

use super::{
    ClientFailure,
    cancel::CallGuard,
    command::ClientCommand,
    connection::Connection,
    copy::CopyOptions,
    copying::CopyWriter,
    frame::FrameError,
    portal::{Portal, PortalProgress, check_described},
    response::{ResultColumn, bare, row_description},
    rows::RowCursor,
    translation::Translation,
    value_input::WireFormat,
};
use crate::{
    phase::Phase,
    work_pool::{NoResult, WorkClass},
};

/// How long a subscription that has sent all rows waits before it looks for more: doubled while there are none.
const WAIT_MIN: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_millis(32);

/// A subscription, and the rows that it has given but the client has not taken.
#[derive(Debug)]
pub(crate) struct FollowedRows {
    /// `None` while it is read in the pool, and after that has failed.
    rows: Option<Subscription>,
    pub(crate) columns: Arc<[ResultColumn]>,
    unsent: Option<RowCursor>,
}

impl ClientCommand {
    /// Returns the statement if it is a SUBSCRIBE.
    pub(crate) fn subscription(&self) -> Option<&Translation> {
        match self {
            Self::Engine(translation) if is_subscription(&translation.sql) => Some(translation),
            _ => None,
        }
    }
}

impl Connection {
    /// Runs a SUBSCRIBE of the simple protocol, until it fails or is cancelled.
    pub(crate) async fn send_subscription(
        &mut self,
        translation: &Translation,
    ) -> Result<(), ClientFailure> {
        let mut followed = self.follow(translation).await?;
        row_description(&mut self.frames.output, &followed.columns, &[]);
        self.send_followed(&mut followed, &[]).await
    }

    /// Begins to follow what a statement names.
    pub(crate) async fn follow(
        &mut self,
        translation: &Translation,
    ) -> Result<FollowedRows, ClientFailure> {
        let sql = translation.sql.clone();
        let subscribe = self.run_in_pool(WorkClass::Requests, move |session| {
            session
                .subscription(&sql)?
                .ok_or_else(|| Box::new(Diagnostic::internal("the statement is no SUBSCRIBE")))
        });
        let rows = subscribe.await.map_err(|failure| failure.placed(translation))?;
        let columns = ResultColumn::of(rows.columns()).into();
        Ok(FollowedRows { rows: Some(rows), columns, unsent: None })
    }

    /// Begins the portal of a SUBSCRIBE.
    pub(crate) async fn begin_subscription(
        &mut self,
        portal: &Portal,
        translation: &Translation,
    ) -> Result<FollowedRows, ClientFailure> {
        let followed = self.follow(translation).await?;
        if let Some(described) = &portal.described {
            check_described(described, &followed.columns)?;
        }
        Ok(followed)
    }

    /// Runs the portal of a SUBSCRIBE: waits for rows, and sends so many at most. Without a limit it sends them as they
    /// come, until it fails or is cancelled.
    pub(crate) async fn execute_subscription(
        &mut self,
        portal: &mut Portal,
        mut followed: FollowedRows,
        rows_max: usize,
    ) -> Result<(), ClientFailure> {
        if rows_max == usize::MAX {
            return self.send_followed(&mut followed, &portal.formats).await;
        }
        let context = QueryContext::new();
        let guard = self.running.begin(&context);
        let mut rows = self.next_rows(&mut followed, &context).await?;
        drop(guard);
        self.send_rows(&mut rows, &portal.formats, rows_max).await?;
        followed.unsent = Some(rows).filter(|rows| !rows.is_end());
        bare(&mut self.frames.output, b's');
        portal.progress = PortalProgress::Following(Box::new(followed));
        Ok(())
    }

    /// Sends rows as they come.
    async fn send_followed(
        &mut self,
        followed: &mut FollowedRows,
        formats: &[WireFormat],
    ) -> Result<(), ClientFailure> {
        let context = QueryContext::new();
        let _guard: CallGuard = self.running.begin(&context);
        loop {
            // What is there is not kept until there is more.
            self.frames.flush().await?;
            let mut rows = self.next_rows(followed, &context).await?;
            self.send_rows(&mut rows, formats, usize::MAX).await?;
        }
    }

    /// Sends rows as they come, as a COPY that has no end.
    pub(crate) async fn copy_subscription(
        &mut self,
        query: &Translation,
        options: &CopyOptions,
    ) -> Result<u64, ClientFailure> {
        let mut followed = self.follow(query).await?;
        let columns = Arc::clone(&followed.columns);
        let mut writer = CopyWriter::begin(options, &columns, self.zone(), &mut self.frames.output);
        let context = QueryContext::new();
        let _guard: CallGuard = self.running.begin(&context);
        loop {
            self.frames.flush().await?;
            let mut rows = self.next_rows(&mut followed, &context).await?;
            self.copy_rows_to(&mut writer, &mut rows).await?;
        }
    }

    /// Waits for rows. Leaves the pool to others while there are none.
    async fn next_rows(
        &mut self,
        followed: &mut FollowedRows,
        context: &QueryContext,
    ) -> Result<RowCursor, ClientFailure> {
        if let Some(rows) = followed.unsent.take() {
            return Ok(rows);
        }
        let mut wait = WAIT_MIN;
        loop {
            if let Err(interrupt) = context.check() {
                return Ok(Diagnostic::interrupted(interrupt.limit_ms()).err()?);
            }
            let Some(mut rows) = followed.rows.take() else {
                return Ok(Diagnostic::internal("the subscription has ended").err()?);
            };
            let read = move |_session: &Session| {
                let batch = rows.next_batch()?;
                Ok((rows, batch))
            };
            let (rows, batch) = self.run_in_pool(WorkClass::Requests, read).await?;
            followed.rows = Some(rows);
            if let Some(batch) = batch {
                return Ok(RowCursor::of_batch(&followed.columns, batch));
            }
            let state = Arc::clone(&self.state);
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait) => wait = (2 * wait).min(WAIT_MAX),
                () = self.frames.closed() => return Err(FrameError::Closed.into()),
                () = state.phase.reached(Phase::Draining) => {
                    return Err(self.refused(NoResult::Closed).into());
                }
            }
        }
    }
}
