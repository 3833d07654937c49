//! Statements as PostgreSQL's clients write them.

use crate::{postgres_client::PgClient, support::TestServer};

/// Returns the types of the columns of a table, as the catalog lists them.
fn column_types(client: &mut PgClient, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT data_type FROM information_schema.columns WHERE table_name = '{table}'
         ORDER BY ordinal_position"
    );
    let reply = client.query(&sql);
    reply.texts().iter().map(|row| row[0].unwrap().to_owned()).collect()
}

#[test]
fn the_precision_of_float_chooses_its_type() {
    let server = TestServer::start(&[], "");
    let mut client = server.session_postgres(&[]);
    client.query("CREATE TABLE t (a FLOAT(53), b float(24), c FLOAT, d REAL, e DOUBLE PRECISION)");
    let expected =
        ["double precision", "real", "double precision", "real", "double precision"];
    assert_eq!(column_types(&mut client, "t"), expected);
    client.query("INSERT INTO t VALUES (0.1, 0.1, 0.1, 0.1, 0.1)");
    let found = client.query("SELECT a = 0.1, c = 0.1, CAST(d AS FLOAT) = 0.1, 0.1::float = 0.1 FROM t");
    assert_eq!(found.texts(), [[Some("t"), Some("t"), Some("f"), Some("t")]]);
    client.query("ALTER TABLE t ADD COLUMN f float");
    assert_eq!(column_types(&mut client, "t")[5], "double precision");
    assert_eq!(client.query("CREATE TABLE u (a FLOAT(54))").code(), "22023");
    assert_eq!(client.query("SELECT 1::float(0)").code(), "22023");
}
