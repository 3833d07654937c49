//! Warnings about queries whose rows train a model, once for each query of a session.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use lockstep_diagnostic::Diagnostic;
use lockstep_function::scalar::feature_role::FeatureRole;
use lockstep_host::sync::Mutex;
use lockstep_plan::BoundQuery;
use lockstep_sql::ast::Query;

use crate::{
    database::TableSet,
    lint::{self, Purpose},
};

/// Maximum number of queries that a session remembers. After that it forgets all of them.
const SEEN_MAX: usize = 1_000;

/// The queries that a session has been warned of, by the hashes of their texts.
#[derive(Debug, Default)]
pub(crate) struct SeenQueries(Mutex<HashSet<u64>>);

impl SeenQueries {
    /// Returns whether a query is seen for the first time.
    fn is_first(&self, key: u64) -> bool {
        let mut seen = self.0.lock();
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(key)
    }
}

/// The lints of one query. They run when its rows are computed.
#[derive(Debug, Clone)]
pub(crate) struct QueryLints {
    seen: Arc<SeenQueries>,
    key: u64,
    /// Whether positions refer to the text of the statement.
    has_text: bool,
}

impl QueryLints {
    /// Returns the lints of a query; `None` if it has nothing that they look at.
    pub(crate) fn of_query(
        seen: &Arc<SeenQueries>,
        bound: &BoundQuery,
        query: &Query,
    ) -> Option<Self> {
        let text = || format!("{query:?}");
        is_looked_at(bound).then(|| Self::new(seen, &text(), true))
    }

    /// Returns the lints of the training set of a deployment.
    pub(crate) fn of_deployment(
        seen: &Arc<SeenQueries>,
        bound: &BoundQuery,
        deployment: &str,
    ) -> Option<Self> {
        is_looked_at(bound).then(|| Self::new(seen, deployment, false))
    }

    fn new(seen: &Arc<SeenQueries>, text: &str, has_text: bool) -> Self {
        let mut hasher = DefaultHasher::new();
        (text, has_text).hash(&mut hasher);
        Self { seen: Arc::clone(seen), key: hasher.finish(), has_text }
    }

    /// Returns the warnings about a query over these tables; none after the first time.
    pub(super) fn warnings(&self, bound: &BoundQuery, tables: &TableSet) -> Vec<Diagnostic> {
        if !self.seen.is_first(self.key) {
            return Vec::new();
        }
        let mut warnings = lint::check(bound, tables, Purpose::Training, "");
        if !self.has_text {
            warnings.iter_mut().for_each(|warning| warning.span = None);
        }
        warnings
    }
}

/// Returns whether a query has a join or a label.
fn is_looked_at(bound: &BoundQuery) -> bool {
    !bound.written.joins.is_empty() || bound.roles().contains(&Some(FeatureRole::Label))
}
