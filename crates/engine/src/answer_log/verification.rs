//! VERIFY DEPLOYMENT … AGAINST ANSWERS: logged requests are answered again as a training set has them.
//!
//! *Life of one*: snapshots of the log and then of the tables are taken, so that the tables have what the
//! answers saw; the stored rows that requests became are found ([`super::own_rows`]); each logged answer is
//! computed again and compared, and where it differs the cause is found ([`super::rebuild`]); the rows that
//! made a difference are read.
//!
//! *Cost*: a request for each logged answer; for one that differs a few more, and for the first ones, whose
//! late rows are named, about 17 for each million rows that arrived since. Holds the values of the requests.

use std::collections::BTreeMap;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Settings, cast::print_datum};
use lockstep_host::{CallStep, query};
use lockstep_row::{Arena, Datum};
use lockstep_table::Snapshot;

use super::{
    AnswerColumns, AnswerVerification, fingerprint,
    own_rows::{OwnRows, WaitingRequests},
    rebuild::{Explanation, Rebuild, check_seen, is_same},
};
use crate::{
    Database, VerifyOptions, catalog::TableEntry, context::checkpoint, database::TableSet,
    deployment::Deployment, known::KnownTables, verify::RowSample,
};

/// The number of answers between two reports of progress.
const ANSWERS_PER_REPORT: u64 = 64;

/// Compares the logged answers of a deployment with those of a training set.
pub(crate) fn verify_answers(
    database: &Database,
    deployment: &Deployment,
    log: &TableEntry,
    options: &VerifyOptions,
) -> Result<AnswerVerification> {
    let program = deployment.request.program();
    let Some(request_table) = &deployment.query.request_table else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "the deployment reads no table").err();
    };
    let columns = AnswerColumns::locate(log, &deployment.request)?;
    // Before those of the tables: they have all that the answers saw.
    let logged = log.table.snapshot();
    let set = TableSet::of(&database.entries_of(&deployment.query.plan)?)
        .spilling_to(database.temporary_storage());
    let tables = KnownTables::new(program, &set, BTreeMap::new());
    let Some(main_table) = tables.now(request_table.id).cloned() else {
        return Diagnostic::internal("the request table is a table of the query").err();
    };
    let run = AnswerRun { deployment, logged: &logged, columns, options };
    let own = run.own_rows(&main_table, request_table.id)?;
    let definition = fingerprint(&deployment.source());
    let mut rebuild = Rebuild::new(program, tables, &definition);
    let mut found = run.compare(&mut rebuild, &own, &definition)?;
    describe_rows(&mut found, rebuild.tables(), &set, deployment.settings)?;
    Ok(found)
}

/// What is compared.
struct AnswerRun<'r> {
    deployment: &'r Deployment,
    logged: &'r Snapshot<'r>,
    columns: AnswerColumns,
    options: &'r VerifyOptions,
}

impl AnswerRun<'_> {
    /// Finds the stored rows that requests became.
    fn own_rows(&self, main_table: &Snapshot<'_>, id: u64) -> Result<OwnRows> {
        let (settings, mut waiting) = (self.deployment.settings, WaitingRequests::default());
        let mut rows = self.logged.scan();
        for number in 0.. {
            let Some(stored) = rows.next_row()? else { break };
            let seen = self.columns.seen(stored.row);
            let seen = seen.iter().find(|(table, _)| *table == id).map_or(0, |(_, seen)| *seen);
            waiting.add((number, seen), stored.row, &self.columns, settings);
        }
        waiting.find(main_table, &self.columns, settings)
    }

    /// Finds for each earlier definition of the deployment the columns that its answers have.
    fn earlier_columns(&self, definition: &str) -> Result<BTreeMap<String, Vec<bool>>> {
        let mut found = BTreeMap::new();
        let mut rows = self.logged.scan();
        for number in 0_usize.. {
            if number.is_multiple_of(4_096) {
                checkpoint()?;
            }
            let Some(stored) = rows.next_row()? else { break };
            let of = self.columns.definition(stored.row);
            if of == definition {
                continue;
            }
            let columns = self.deployment.request.output().len();
            let known = found.entry(of.to_owned()).or_insert_with(|| vec![false; columns]);
            self.columns.note_values(stored.row, known);
        }
        Ok(found)
    }

    fn compare(
        &self,
        rebuild: &mut Rebuild<'_>,
        own: &OwnRows,
        definition: &str,
    ) -> Result<AnswerVerification> {
        let program = self.deployment.request.program();
        let (columns, settings) = (self.deployment.request.output(), &self.deployment.settings);
        let (all, earlier) = (vec![true; columns.len()], self.earlier_columns(definition)?);
        let logged = self.logged.count(None)?;
        let mut found = AnswerVerification { logged, ..AnswerVerification::default() };
        let mut sample = RowSample::new(self.options.sample, logged);
        let mut rows = self.logged.scan();
        for number in 0.. {
            if number % ANSWERS_PER_REPORT == 0 {
                checkpoint()?;
                query::report(CallStep::AnswerRequests, number, logged);
            }
            let Some(stored) = rows.next_row()? else { break };
            if !sample.contains(number) {
                continue;
            }
            let logged = self.columns.read(number, stored.row);
            check_seen(program, &logged)?;
            let own = own.of(number);
            let rebuilt = rebuild.trained(&logged, own)?;
            let compared = earlier.get(&logged.definition).unwrap_or(&all);
            let values = compared.iter().filter(|is_compared| **is_compared).count() as u64;
            found.answers += 1;
            found.values += logged.answer.as_ref().map_or(1, |_| values);
            if is_same(&rebuilt, &logged.answer, compared) {
                continue;
            }
            found.differing += 1;
            let names_rows = found.reports_more();
            let rebuilt_at = (&rebuilt, own);
            for explanation in rebuild.explain(&logged, rebuilt_at, compared, names_rows)? {
                let rows = lacking(&explanation, self.deployment);
                found.add(&logged, &rebuilt, (&explanation, &rows), (columns, settings));
            }
        }
        Ok(found)
    }
}

/// Says which tables lack rows; empty where none do.
fn lacking(explanation: &Explanation, of: &Deployment) -> String {
    let names = of.tables.iter().filter(|table| explanation.lacking.contains(&table.id));
    let names: Vec<String> = names.map(|table| format!("`{}`", table.name.name)).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("rows of {} no longer exist", names.join(", "))
    }
}

/// Writes the rows that made differences, which are read once.
fn describe_rows(
    found: &mut AnswerVerification,
    tables: &KnownTables<'_>,
    set: &TableSet,
    settings: Settings,
) -> Result<()> {
    let wanted = found.differences.iter().flat_map(|one| &one.arrivals);
    let mut texts: BTreeMap<u64, String> =
        wanted.map(|arrival| (*arrival, String::new())).collect();
    for id in set.by_id.keys() {
        let Some(snapshot) = tables.now(*id) else { continue };
        if texts.values().all(|text| !text.is_empty()) {
            break;
        }
        let mut rows = snapshot.scan();
        for count in 0_usize.. {
            if count.is_multiple_of(4_096) {
                checkpoint()?;
            }
            let Some(stored) = rows.next_row()? else { break };
            if let Some(text) = texts.get_mut(&stored.arrival) {
                let arena = Arena::new();
                let columns = snapshot.schema().columns.iter().enumerate();
                let values = columns.map(|(at, column)| {
                    let value: Datum<'_> = stored.row.get_in(at, &arena);
                    format!("{}={}", column.name, print_datum(value, &settings))
                });
                *text = values.collect::<Vec<_>>().join(" ");
            }
        }
    }
    for difference in found.differences.iter_mut().filter(|one| !one.arrivals.is_empty()) {
        let rows = difference.arrivals.iter().filter_map(|arrival| texts.get(arrival));
        difference.rows = rows.cloned().collect::<Vec<_>>().join("; ");
    }
    Ok(())
}
