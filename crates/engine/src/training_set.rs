//! The training set of a deployment: what its query gives in batch mode, or what its requests were
//! answered at the moments at which rows arrived.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Settings;
use lockstep_sql::ast::ObjectName;

use crate::{
    Conversion, PreparedRequest, Relation, Session,
    access::{Needs, Requirement},
    catalog::TableEntry,
    deployment::Deployment,
    entrance::{CallDescription, no_plan},
    known::{DeployedRequests, KnownBy, KnownQuery, ResultRange},
    relation::{QueryLints, RelationContext},
    session::object_name,
    user::{Privilege, Securable},
    variables::Storage,
    verify::reads_of,
};

/// The options of a training set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainingSetOptions {
    /// The table whose rows are the requests; the deployment's own where there is none. A row needs the
    /// columns on which an answer depends, by name.
    pub main_table: Option<String>,
    /// Whether each row sees only what had arrived before it, in every table, as a request did.
    pub as_known: bool,
}

impl Session {
    /// Returns the training set of a deployment, which is computed when its rows are fetched. As known,
    /// the deployed program answers each row of the main table.
    ///
    /// ```
    /// use lockstep_engine::{Database, TrainingSetOptions};
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (v INT, ts BIGINT); INSERT INTO t VALUES (1, 20), (2, 10)")?;
    /// session.execute(
    ///     "DEPLOY d AS SELECT v, count(v) OVER w AS n FROM t
    ///      WINDOW w AS (ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    /// )?;
    /// let options = TrainingSetOptions { as_known: true, ..TrainingSetOptions::default() };
    /// let known = session.training_set("d", &options)?;
    /// assert_eq!(known.collect(None)?.row_count(), 2);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn training_set(&self, deployment: &str, options: &TrainingSetOptions) -> Result<Relation> {
        let main_table = options.main_table.as_deref().map(|name| object_name(name.trim()));
        let operation = || CallDescription {
            action: "TRAINING SET",
            text: deployment,
            needs: Needs::of(vec![self.execution_of(deployment)]),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || {
            self.relation_of_deployment(deployment, main_table, options.as_known)
        })
    }

    fn relation_of_deployment(
        &self,
        deployment: &str,
        main_table: Option<ObjectName>,
        as_known: bool,
    ) -> Result<Relation> {
        let found = self.find_deployment(deployment)?;
        let mut requirements = reads_of(&found);
        requirements.push(self.execution_of(deployment));
        if let Some(name) = &main_table {
            let table = Securable::Table(self.qualified(name));
            requirements.push(Requirement::new(Privilege::Select, table));
        }
        let guard = match self.caller().is_process() {
            true => None,
            false => self.guard(requirements)?,
        };
        let table = main_table
            .map(|name| self.main_table_of(&found, &name, as_known))
            .transpose()?
            .flatten();
        // What the query means was decided at DEPLOY; times are printed as the session says.
        let settings = Settings { time_zone: self.settings().time_zone, ..found.settings };
        let context = RelationContext {
            temporary: self.temporary_storage(),
            window_skew: self.variables().window_skew(),
            storage: Storage::Online,
            conversion: Conversion::new(settings, self.conversion().nan_is_null()),
            limits: self.limits(),
            caller: self.caller().clone(),
            warnings: Vec::new(),
            lints: QueryLints::of_deployment(self.seen_queries(), &found.training, deployment),
        };
        let query = found.training.clone();
        let relation = Relation::new(self.database.clone(), query, context, None, guard);
        if !as_known {
            return Ok(relation);
        }
        let request = match found.has_labels() {
            false => Arc::clone(&found.request),
            true => {
                let entries = self.database.entries_of(&found.training.plan)?;
                let temporary = self.temporary_storage();
                let query = &found.training;
                Arc::new(PreparedRequest::compile(query, &self.database, &entries, temporary)?)
            }
        };
        let deployed = Some(DeployedRequests { request, table });
        let (by, range) = (KnownBy::Arrival, ResultRange::default());
        Ok(relation.with_known(KnownQuery { by, range, span: Span::default(), deployed }))
    }

    /// Finds the main table; `None` where it is the deployment's own.
    fn main_table_of(
        &self,
        found: &Deployment,
        name: &ObjectName,
        as_known: bool,
    ) -> Result<Option<TableEntry>> {
        let entry = self.find_entry(name)?;
        let own = found.query.request_table.as_ref().map(|table| table.id);
        if own == Some(entry.id) {
            return Ok(None);
        }
        if as_known {
            return Ok(Some(entry));
        }
        let message = format!("`{}` is not the request table of the deployment", name.name.text);
        Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
            .with_hint(
                "Use as_known for another main table: it places the table's rows by arrival among \
                 the rows of the deployment's tables.",
            )
            .err()
    }
}
