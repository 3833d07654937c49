//! Checks whether a user has a privilege, for front ends that report it.

use crate::{
    Session,
    access::qualified,
    user::{Privilege, Securable},
};

/// A privilege on a table or a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TablePrivilege {
    /// SELECT.
    Select,
    /// INSERT.
    Insert,
    /// DELETE.
    Delete,
    /// TRUNCATE.
    Truncate,
}

impl Session {
    /// Returns whether a user, by default that of the session, has a privilege on a table or a view of the
    /// current database. A user who does not exist has none.
    ///
    /// ```
    /// use lockstep_engine::{Database, TablePrivilege::{Insert, Select}};
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (v INT); CREATE USER ann; GRANT SELECT ON default.t TO ann")?;
    /// assert!(session.has_table_privilege(None, "t", Insert));
    /// assert!(session.has_table_privilege(Some("ann"), "t", Select));
    /// assert!(!session.has_table_privilege(Some("ann"), "t", Insert));
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn has_table_privilege(
        &self,
        user: Option<&str>,
        name: &str,
        privilege: TablePrivilege,
    ) -> bool {
        let privilege = match privilege {
            TablePrivilege::Select => Privilege::Select,
            TablePrivilege::Insert => Privilege::Insert,
            TablePrivilege::Delete => Privilege::Delete,
            TablePrivilege::Truncate => Privilege::Truncate,
        };
        if user.is_none() && self.caller().is_process() {
            return true;
        }
        let object = Securable::Table(qualified(&self.current_database(), name));
        let user = user.unwrap_or(self.caller().name());
        self.database.objects().users().is_allowed(user, privilege, &object)
    }
}
