//! Subscriptions: the rows of a table, or of a stream, as they are appended.

use std::{sync::Arc, time::Duration};

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::{Arena, DataType, arrow::ColumnBuilder};
use lockstep_sql::ast::{Literal, OptionItem, OptionValue, Statement, StreamStatement};
use lockstep_table::{TableTail, TailError, TailOptions, TailSignal};

use crate::{
    Database, Output, Session,
    access::{Caller, Needs, Requirement},
    catalog::{Definition, TableEntry},
    context::checkpoint,
    entrance::{CallDescription, no_plan},
    options::{OptionArgument, OptionSpec, OptionTable, UnknownOption, word},
    session::object_name,
    user::{Privilege, Securable},
};

/// A batch has so many rows at most.
const ROWS_PER_BATCH: usize = 8_192;
/// About so many bytes of rows are in a batch at most.
const BYTES_PER_BATCH: usize = 8 << 20;
/// How many bytes of rows are kept for a subscription that were removed before it has read them.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// How long a call waits before it looks whether it was cancelled.
const WAIT: Duration = Duration::from_millis(50);

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubscriptionStart {
    /// With the rows that are appended from now on.
    #[default]
    Latest,
    /// With the rows that are stored.
    Earliest,
    /// With the rows behind a place, which [`Subscription::position`] has returned.
    Position(u64),
}

/// The rows of a table, or of a stream, as they are appended.
pub struct Subscription {
    database: Database,
    caller: Caller,
    needed: Requirement,
    definition: Arc<Definition>,
    columns: Vec<(String, DataType)>,
    tail: TableTail,
    signal: Arc<TailSignal>,
}

const OPTIONS: OptionTable<'_, SubscriptionStart> = OptionTable {
    specs: &[OptionSpec {
        name: "start",
        set: |start, argument| {
            *start = read_start(argument)?;
            Ok(())
        },
    }],
    unknown: UnknownOption::Error,
    error_code: code::INVALID_PARAMETER,
};

fn read_start(argument: &OptionArgument<'_>) -> Result<SubscriptionStart> {
    let position = match argument.value() {
        OptionValue::Literal(Literal::Int(position)) => u64::try_from(*position).ok(),
        OptionValue::Literal(Literal::BigInt(position)) => u64::try_from(*position).ok(),
        value => match word(value).map(str::to_ascii_lowercase).as_deref() {
            Some("latest") => return Ok(SubscriptionStart::Latest),
            Some("earliest") => return Ok(SubscriptionStart::Earliest),
            text => text.and_then(|text| text.parse().ok()),
        },
    };
    match position {
        Some(position) => Ok(SubscriptionStart::Position(position)),
        None => argument.invalid("must be 'latest', 'earliest' or a position"),
    }
}

/// Returns whether a text is a SUBSCRIBE, by its first word.
pub fn is_subscription(sql: &str) -> bool {
    const WORD: &str = "SUBSCRIBE";
    let first = sql.trim_start().get(..WORD.len());
    first.is_some_and(|first| first.eq_ignore_ascii_case(WORD))
}

impl Session {
    /// Follows the rows of a table, or the results of a stream: `name` or `database.name`.
    ///
    /// ```
    /// use lockstep_engine::{Database, SubscriptionStart};
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")?;
    /// let mut rows = session.subscribe("t", SubscriptionStart::Earliest)?;
    /// assert_eq!(rows.next_batch()?.map(|batch| batch.num_rows()), Some(1));
    /// assert!(rows.next_batch()?.is_none(), "there are no more for now");
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn subscribe(&self, name: &str, start: SubscriptionStart) -> Result<Subscription> {
        let name = object_name(name.trim());
        let named = self.qualified(&name);
        let needed = Requirement::new(Privilege::Select, Securable::Table(named.clone()));
        let operation = || CallDescription {
            action: "SUBSCRIBE",
            text: &name.name.text,
            needs: Needs::of(vec![needed.clone()]),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || {
            let of_stream = {
                let objects = self.database().objects();
                let stream = objects.find_stream(&named);
                stream.map(|stream| objects.entry(&stream.target).cloned()).transpose()?
            };
            let entry = of_stream.map_or_else(|| self.find_entry(&name), Ok)?;
            Ok(self.follow(&entry, needed.clone(), start))
        })
    }

    /// Follows what `SUBSCRIBE TO …` names; `None` if the text is another statement.
    pub fn subscription(&self, sql: &str) -> Result<Option<Subscription>> {
        if !is_subscription(sql) {
            return Ok(None);
        }
        let statements = lockstep_sql::parse(sql)?;
        let [parsed] = statements.as_slice() else { return Ok(None) };
        let Statement::Stream(StreamStatement::Subscribe { name, options }) = &parsed.statement
        else {
            return Ok(None);
        };
        let start = Self::subscription_start(options)?;
        let text = match &name.database {
            Some(database) => format!("{}.{}", database.text, name.name.text),
            None => name.name.text.clone(),
        };
        // The text of the name is no part of the statement: an error has the place of the name in it.
        let followed = self.subscribe(&text, start);
        followed.map(Some).map_err(|mut error| {
            error.span = Some(name.name.span);
            error
        })
    }

    fn subscription_start(options: &[OptionItem]) -> Result<SubscriptionStart> {
        let mut start = SubscriptionStart::default();
        OPTIONS.read(options, &mut start)?;
        Ok(start)
    }

    fn follow(
        &self,
        entry: &TableEntry,
        needed: Requirement,
        start: SubscriptionStart,
    ) -> Subscription {
        let from = match start {
            SubscriptionStart::Latest => None,
            SubscriptionStart::Earliest => Some(0),
            SubscriptionStart::Position(position) => Some(position),
        };
        let signal = TailSignal::new();
        let tail = entry.table.tail(TailOptions { from, limit_bytes: HELD_BYTES_MAX }, &signal);
        let schema = entry.table.schema();
        let columns = schema.columns.iter();
        Subscription {
            database: self.database.as_unowned(),
            caller: self.caller().clone(),
            needed,
            definition: Arc::clone(&entry.definition),
            columns: columns.map(|c| (c.name.clone(), c.data_type.clone())).collect(),
            tail,
            signal,
        }
    }
}

impl Subscription {
    /// Returns the names and types of the columns.
    pub fn columns(&self) -> &[(String, DataType)] {
        &self.columns
    }

    /// Returns the next rows; `None` when there are none for now. Does not wait. Fails once the table was dropped and
    /// all of its rows were read, when the caller may no longer read it, and when rows were removed before they were
    /// read that would have taken too much memory; then it goes on behind these.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.database.check_open()?;
        self.caller.check_object(&self.database.objects(), &self.needed)?;
        let mut builders: Vec<ColumnBuilder> =
            self.columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 0)).collect();
        let read = self.tail.read_some(ROWS_PER_BATCH, BYTES_PER_BATCH, |found| {
            let arena = Arena::new();
            for (at, builder) in builders.iter_mut().enumerate() {
                builder.push(found.row.get_in(at, &arena));
            }
        });
        let rows = read.map_err(|error| self.lost(&error))?;
        if rows == 0 {
            if self.tail.is_ended() {
                self.definition.check()?;
            }
            return Ok(None);
        }
        let output = Output::of_columns(self.columns.clone(), builders, rows)?;
        debug_assert_eq!(output.batches.len(), 1, "rows are in one batch");
        Ok(output.batches.into_iter().next())
    }

    /// Waits until there may be rows, as long as said at most.
    pub fn wait(&self, longest: Duration) {
        self.signal.wait(longest);
    }

    /// Returns the place behind the rows that were given, where another subscription may go on.
    pub fn position(&self) -> u64 {
        self.tail.position()
    }

    /// Passes rows on as they are appended, until `consume` fails, or the call is cancelled.
    pub fn run_each(&mut self, consume: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        loop {
            checkpoint()?;
            match self.next_batch()? {
                Some(batch) => consume(batch)?,
                None => self.wait(WAIT),
            }
        }
    }

    /// Lets less be kept of removed rows.
    #[doc(hidden)]
    pub fn holding(session: &Session, name: &str, limit_bytes: u64) -> Result<Self> {
        let name = object_name(name);
        let entry = session.find_entry(&name)?;
        let mut followed = session.subscribe(&name.name.text, SubscriptionStart::Latest)?;
        let options = TailOptions { from: None, limit_bytes };
        followed.tail = entry.table.tail(options, &followed.signal);
        Ok(followed)
    }

    /// Makes the error of rows that cannot be given.
    fn lost(&self, error: &TailError) -> Box<Diagnostic> {
        let message = format!("rows of table `{}` were not given", self.definition.name());
        Box::new(
            Diagnostic::new(code::OUT_OF_MEMORY, message)
                .with_kind(Kind::Retry)
                .with_detail(format!("{error}."))
                .with_hint("Read the rows sooner, or remove them later; subscribe again to continue behind them."),
        )
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("tail", &self.tail).finish_non_exhaustive()
    }
}
