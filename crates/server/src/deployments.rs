//! The deployments that a client has called: compiled requests with the schemas of their rows.
//!
//! Each login has its own, and what it prepared checks at each answer that the user may ask: REVOKE
//! takes effect at once. A call finds all that it needs by the name alone, without a session. An entry
//! keeps no deployment alive: once the deployment is dropped or replaced, the next call prepares it
//! again. Knows no protocol beyond the JSON keys of its answers.

use std::{collections::HashMap, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{
    Output, PreparedRequest, Session, WeakRequest,
    text_rows::{KeyRule, RowSchema},
};
use lockstep_host::sync::RwLock;
use lockstep_row::DataType;

use crate::{http::push_json, metrics::DeploymentMetrics};

/// Maximum number of attempts of a request, each of which fails because its deployment was replaced.
pub(crate) const ATTEMPTS_MAX: usize = 100;

/// The most deployments that a login keeps; then all are prepared again.
const DEPLOYMENTS_MAX: usize = 1_024;

/// A deployment that was called.
#[derive(Debug)]
pub(crate) struct CachedDeployment {
    request: WeakRequest,
    pub(crate) input: RowSchema,
    pub(crate) output: Vec<(String, DataType)>,
    /// The names of the answer's columns as JSON, with the colon.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) metrics: Arc<DeploymentMetrics>,
}

/// The deployments that were called, by their name, with the database where a call names it.
#[derive(Debug, Default)]
pub(crate) struct DeploymentCache {
    by_name: RwLock<HashMap<String, Arc<CachedDeployment>>>,
}

impl DeploymentCache {
    /// Returns a deployment with its compiled request.
    pub(crate) fn get(
        &self,
        name: &str,
        session: &Session,
        metrics: impl FnOnce() -> Arc<DeploymentMetrics>,
    ) -> Result<(Arc<CachedDeployment>, PreparedRequest)> {
        let found = self.by_name.read().get(name).map(Arc::clone);
        if let Some(found) = found
            && let Some(request) = found.request.upgrade()
        {
            return Ok((found, request));
        }
        self.remove(name);
        self.prepare(name, session, metrics)
    }

    /// Forgets a deployment that was dropped or replaced.
    pub(crate) fn remove(&self, name: &str) {
        self.by_name.write().remove(name);
    }

    /// Prepares a deployment. Only one that there is gets figures: names that clients make up would
    /// fill their table.
    fn prepare(
        &self,
        name: &str,
        session: &Session,
        metrics: impl FnOnce() -> Arc<DeploymentMetrics>,
    ) -> Result<(Arc<CachedDeployment>, PreparedRequest)> {
        // The text of a query is not the name of a deployment.
        session.deployment(name)?;
        let request = session.prepare_request(name)?;
        let output = answer_columns(request.output());
        let key = |(name, _): &(String, DataType)| {
            let mut key = Vec::new();
            push_json(&mut key, name.as_str());
            key.push(b':');
            key
        };
        let keys = KeyRule::AllReadAndMore(request.reads().to_vec());
        let found = Arc::new(CachedDeployment {
            request: request.downgrade(),
            input: RowSchema::new(request.input(), session.conversion(), keys),
            keys: output.iter().map(key).collect(),
            output,
            metrics: metrics(),
        });
        let mut by_name = self.by_name.write();
        if by_name.len() >= DEPLOYMENTS_MAX {
            by_name.clear();
        }
        by_name.insert(name.to_owned(), Arc::clone(&found));
        Ok((found, (*request).clone()))
    }
}

/// Returns the columns of an answer as clients see them: each name is there once.
pub(crate) fn answer_columns(columns: &[(String, DataType)]) -> Vec<(String, DataType)> {
    let schema = Output { columns: columns.to_vec(), ..Output::default() }.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    names.zip(columns).map(|(name, (_, data_type))| (name, data_type.clone())).collect()
}

/// Returns whether an answer failed because its deployment was dropped or replaced.
pub(crate) fn is_stale(error: &Diagnostic) -> bool {
    error.code == code::STALE_DEFINITION
}
