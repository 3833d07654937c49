//! Statements as PostgreSQL's clients write them: types, and the schema of names.

use crate::{
    postgres_client::{PgClient, frame},
    postgres_extended::run,
    support::TestServer,
};

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
    let expected = ["double precision", "real", "double precision", "real", "double precision"];
    assert_eq!(column_types(&mut client, "t"), expected);
    client.query("INSERT INTO t VALUES (0.1, 0.1, 0.1, 0.1, 0.1)");
    let found =
        client.query("SELECT a = 0.1, c = 0.1, CAST(d AS FLOAT) = 0.1, 0.1::float = 0.1 FROM t");
    assert_eq!(found.texts(), [[Some("t"), Some("t"), Some("f"), Some("t")]]);
    client.query("ALTER TABLE t ADD COLUMN f float");
    assert_eq!(column_types(&mut client, "t")[5], "double precision");
    assert_eq!(client.query("CREATE TABLE u (a FLOAT(54))").code(), "22023");
    assert_eq!(client.query("SELECT 1::float(0)").code(), "22023");
}

#[test]
fn the_schema_public_has_the_tables_of_the_current_database() {
    let setup = "CREATE TABLE t (a INT, public INT); INSERT INTO t VALUES (1, 7);
                 CREATE DATABASE shop; USE shop; CREATE TABLE t (a INT); INSERT INTO t VALUES (2)";
    let server = TestServer::start(&[], setup);
    let mut client = server.session_postgres(&[]);
    let none: Vec<Vec<(u8, String)>> = Vec::new();
    for sql in [
        "SELECT \"public\".\"t\".\"a\" AS a FROM \"public\".\"t\"",
        "SELECT x.a FROM public.t x, public.t y",
        "SELECT a FROM default.public.t",
        "SELECT default.public.t.a FROM default.t",
        "WITH c AS (SELECT * FROM public.t) SELECT a FROM c",
    ] {
        assert_eq!(client.query(sql).value(), "1", "{sql}");
    }
    assert_eq!(client.query("SELECT t.public FROM public.t").value(), "7");
    assert_eq!(run(&mut client, "SELECT a FROM public.t WHERE a = $1", &["1"]).value(), "1");
    for sql in [
        "CREATE TABLE \"public\".\"u\" (a INT)",
        "CREATE INDEX i ON public.u (a)",
        "INSERT INTO public.u (a) VALUES (5)",
        "ALTER TABLE public.u ADD b INT",
        "DELETE FROM public.u WHERE a = 6",
        "CREATE VIEW public.v AS SELECT a FROM public.u",
    ] {
        assert_eq!(client.query(sql).errors, none, "{sql}");
    }
    assert_eq!(client.query("COPY public.u (a) FROM STDIN").status, 'G');
    client.send(&[frame(b'd', b"9\n"), frame(b'c', b"")].concat());
    assert_eq!(client.reply().tags, ["COPY 1"]);
    assert_eq!(client.query("SELECT sum(a) FROM public.v").value(), "14");
    let failed = client.query("SELECT a FROM public.nothing");
    assert_eq!((failed.code(), failed.error(b'P')), ("42P01", "22"));
    for sql in ["DROP VIEW public.v", "TRUNCATE TABLE public.u", "DROP TABLE IF EXISTS public.u"] {
        assert_eq!(client.query(sql).errors, none, "{sql}");
    }
    let mut shop = server.session_postgres(&[("database", "shop")]);
    assert_eq!(shop.query("SELECT a FROM public.t").value(), "2");
    // A database that has the name wins.
    server.database.session().execute("CREATE DATABASE public").unwrap();
    assert_eq!(shop.query("SELECT a FROM public.t").code(), "42P01");
}
