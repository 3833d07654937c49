//! Queries of PostgreSQL's catalogs as real clients send them.

use crate::{
    postgres::scram,
    postgres_client::{frame, packet, texts},
    support::TestServer,
};

const SETUP: &str = "
    CREATE TABLE orders (user STRING, price DOUBLE, ts TIMESTAMP, INDEX(KEY=user, TS=ts));
    CREATE TABLE clicks (a INT);
    DEPLOY total AS SELECT user, price FROM orders;
    CREATE USER ann OPTIONS(password='secret'); CREATE DATABASE shop;";

/// `\d` of psql 15.
const RELATIONS: &str = r#"SELECT n.nspname as "Schema", c.relname as "Name",
  CASE c.relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' END as "Type",
  pg_catalog.pg_get_userbyid(c.relowner) as "Owner"
FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE c.relkind IN ('r','p','v','m','S','f','')
      AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
      AND n.nspname <> 'information_schema'
  AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY 1,2;"#;

/// What `\d orders` of psql 15 begins with.
const NUMBER: &str = "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$' COLLATE pg_catalog.default
  AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3;";

/// The columns of a table, as `\d orders` asks for them; the number is put in.
const ATTRIBUTES: &str = "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
  (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d
   WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = '{}' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;";

/// `getTables` of the JDBC driver, shortened to what decides.
const JDBC: &str = "SELECT current_database() AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME,
 CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema' WHEN true THEN 'SYSTEM TABLE'
 WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'i' THEN 'INDEX' ELSE NULL END
 ELSE NULL END AS TABLE_TYPE, d.description AS REMARKS
 FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
 LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 and d.classoid = 'pg_class'::regclass)
 WHERE c.relnamespace = n.oid AND c.relname LIKE E'order%' AND (false OR ( c.relkind = 'r' ))
 ORDER BY TABLE_TYPE,TABLE_SCHEM,TABLE_NAME";

#[test]
fn psql_describes_what_there_is() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let found = client.query(RELATIONS);
    let row = |name| [Some("public"), Some(name), Some("table"), Some("root")];
    assert_eq!(found.texts(), [row("clicks"), row("orders")], "{found:?}");
    assert_eq!(found.columns[1], ("Name".to_owned(), 19));
    let found = client.query(NUMBER);
    let number = found.texts()[0][0].unwrap().to_owned();
    let found = client.query(&ATTRIBUTES.replace("{}", &number));
    let row = |name, data_type| [Some(name), Some(data_type), None, Some("f")];
    let expected = [
        row("user", "text"),
        row("price", "double precision"),
        row("ts", "timestamp with time zone"),
    ];
    assert_eq!(found.texts(), expected, "{found:?}");
    let roles = client.query("SELECT r.rolname, ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid) WHERE m.member = r.oid) as memberof FROM pg_catalog.pg_roles r WHERE r.rolname !~ '^pg_' ORDER BY 1");
    assert_eq!(roles.texts(), [[Some("ann"), Some("{}")], [Some("root"), Some("{}")]]);
    let databases = client.query("SELECT d.datname, pg_catalog.pg_encoding_to_char(d.encoding) FROM pg_catalog.pg_database d ORDER BY 1");
    assert_eq!(databases.texts(), [[Some("default"), Some("UTF8")], [Some("shop"), Some("UTF8")]]);
    let functions = client.query(
        "SELECT p.proname, pg_catalog.pg_get_function_arguments(p.oid) FROM pg_catalog.pg_proc p",
    );
    let arguments = "user text, price double precision, ts timestamp with time zone";
    assert_eq!(functions.texts(), [[Some("total"), Some(arguments)]]);
}

#[test]
fn drivers_find_tables_and_columns() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let found = client.query(JDBC);
    let row = [Some("default"), Some("public"), Some("orders"), Some("TABLE"), None];
    assert_eq!(found.texts(), [row], "{found:?}");
    let found = client.query(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'clicks'",
    );
    assert_eq!(found.texts(), [[Some("a"), Some("integer")]]);
    let found = client.query("SELECT t.typname, e.typname FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem WHERE t.oid = ANY('{1009,23}') ORDER BY t.oid");
    assert_eq!(found.texts(), [[Some("int4"), None], [Some("_text"), Some("text")]]);
    let found = client.query("SELECT count(*) FROM pg_class WHERE relkind = 'r' UNION ALL SELECT count(*) FROM pg_trigger");
    assert_eq!(found.texts(), [[Some("2")], [Some("0")]]);
    let found = client.query(
        "SELECT 'orders'::regclass::oid = c.oid AS same FROM pg_class c WHERE relname = 'orders'",
    );
    assert_eq!(found.value(), "t");
}

#[test]
fn patterns_match_texts_of_any_length() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let long = "a".repeat(60_000);
    let mut value = |condition: &str| client.query(&format!("SELECT {condition} FROM pg_am"));
    for (condition, expected) in [
        (format!("'{long}' ~ '^(aa?)*$'"), "t"),
        (format!("'{long}b' ~* 'AB$'"), "t"),
        (format!("'{long}' !~ '(a*)*b'"), "t"),
        (format!("'{long}b' LIKE '%a_'"), "t"),
        ("'bb' ~ '^(a|b+)$'".to_owned(), "t"),
        ("'bz' ~ '[a-c]x?[^0-9]'".to_owned(), "t"),
        ("'axb' ~ 'a\\.b'".to_owned(), "f"),
        ("'a\\b%' LIKE 'a\\b!%' ESCAPE '!'".to_owned(), "t"),
        ("'abc' LIKE 'A%'".to_owned(), "f"),
        ("'abc' ILIKE 'A%'".to_owned(), "t"),
    ] {
        let found = value(&condition);
        let condition = condition.replace(&long, "…");
        assert_eq!(found.value(), expected, "{condition}");
    }
    for wrong in ["(", "a)", "[a", "*", "a\\"] {
        let found = value(&format!("'a' ~ '{wrong}'"));
        assert_eq!(found.code(), "22023", "{wrong}");
    }
}

/// Queries with what tools use of SQL, and the first row of their answers.
const FORMS: &[(&str, &[Option<&str>])] = &[
    (
        "SELECT relkind, count(*), string_agg(relname, '+' ORDER BY relname DESC) FROM pg_class
         GROUP BY relkind HAVING count(*) > 1 ORDER BY 1",
        &[Some("r"), Some("2"), Some("orders+clicks")],
    ),
    (
        "WITH RECURSIVE n (at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 5)
         SELECT sum(at), array_agg(at ORDER BY at DESC) FROM n JOIN pg_am ON true",
        &[Some("15"), Some("{5,4,3,2,1}")],
    ),
    (
        "(SELECT relname FROM pg_class EXCEPT SELECT relname FROM pg_class WHERE relkind = 'i')
         INTERSECT SELECT tablename FROM pg_tables ORDER BY relname LIMIT 1 OFFSET 1",
        &[Some("orders")],
    ),
    (
        "SELECT c.relname, a.attname, row_number() OVER (PARTITION BY a.attrelid ORDER BY attnum DESC)
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND c.relkind = 'r'
         ORDER BY 1 DESC, 3",
        &[Some("orders"), Some("ts"), Some("1")],
    ),
    (
        "SELECT i.indkey, i.indkey[0], k.attname, k.number FROM pg_index i
         CROSS JOIN LATERAL (SELECT a.attname, g.number FROM generate_subscripts(i.indkey, 1) AS g(number)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[g.number]) k
         ORDER BY k.number DESC",
        &[Some("1 3"), Some("1"), Some("ts"), Some("1")],
    ),
    (
        "SELECT (information_schema._pg_expandarray(i.indkey)).n, (information_schema._pg_expandarray(i.indkey)).x
         FROM pg_index i ORDER BY 1 DESC",
        &[Some("2"), Some("3")],
    ),
    (
        "SELECT a.x, b.y FROM (VALUES (1, 'p'), (2, 'q')) AS a (k, x)
         FULL JOIN (SELECT 2 AS k, oid::regclass AS y FROM pg_class WHERE relname = 'clicks') b USING (k)
         WHERE a.x = 'q'",
        &[Some("q"), Some("clicks")],
    ),
    (
        "SELECT c.relname FROM pg_am RIGHT JOIN pg_class c ON false WHERE c.relkind IN ('r', 'v')
         ORDER BY relname NULLS FIRST FETCH FIRST 1 ROWS ONLY",
        &[Some("clicks")],
    ),
    (
        "SELECT DISTINCT ON (a.attrelid) c.relname, a.attname FROM pg_attribute a
         JOIN pg_class c ON c.oid = a.attrelid WHERE c.relkind = 'r' ORDER BY a.attrelid, a.attnum DESC",
        &[Some("orders"), Some("ts")],
    ),
    (
        "SELECT u.value, u.at FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY AS u (value, at)
         WHERE u.value IS DISTINCT FROM 'a' AND EXISTS (SELECT FROM pg_am)",
        &[Some("b"), Some("2")],
    ),
    (
        "SELECT CASE WHEN 'a' = ANY (current_schemas(true)) THEN 1 ELSE cardinality(current_schemas(true)) END,
         'pg_catalog.pg_class'::regclass::oid, 'int4'::regtype, format_type(1009, NULL)",
        &[Some("2"), Some("1259"), Some("integer"), Some("text[]")],
    ),
    (
        "SELECT trim(s[i]), quote_ident('a B') FROM
         generate_series(1, array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
         string_to_array(current_setting('search_path'), ',') s WHERE i = 2",
        &[Some("public"), Some("\"a B\"")],
    ),
];

#[test]
fn catalogs_are_read_with_the_sql_of_tools() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    for (sql, expected) in FORMS {
        let found = client.query(sql);
        assert_eq!(found.texts().first().map(Vec::as_slice), Some(*expected), "{sql}: {found:?}");
    }
}

#[test]
fn views_are_relations() {
    let server = TestServer::start(&[], SETUP);
    let setup = "CREATE VIEW paid AS SELECT user, price > 0 AS is_paid FROM orders";
    server.database.session().execute(setup).unwrap();
    let mut client = server.session_postgres(&[]);
    let columns = "user:text,is_paid:boolean";
    for (sql, expected) in [
        ("SELECT relname FROM pg_class WHERE relkind = 'v'", "paid"),
        ("SELECT viewname FROM pg_views", "paid"),
        ("SELECT count(*) FROM pg_tables", "2"),
        (
            "SELECT string_agg(attname || ':' || format_type(atttypid, -1), ',' ORDER BY attnum)
             FROM pg_attribute WHERE attrelid = 'paid'::regclass",
            columns,
        ),
        ("SELECT table_name FROM information_schema.tables WHERE table_type = 'VIEW'", "paid"),
        (
            "SELECT string_agg(column_name || ':' || data_type, ',' ORDER BY ordinal_position)
             FROM information_schema.columns WHERE table_name = 'paid'",
            columns,
        ),
        ("SELECT is_updatable FROM information_schema.views WHERE table_name = 'paid'", "NO"),
    ] {
        let found = client.query(sql);
        assert_eq!(found.value(), expected, "{sql}: {found:?}");
    }
    for sql in [
        "SELECT definition FROM pg_views",
        "SELECT view_definition FROM information_schema.views",
        "SELECT pg_get_viewdef('paid'::regclass)",
        "SELECT pg_get_viewdef(c.oid, true) FROM pg_class c WHERE c.relname = 'paid'",
    ] {
        assert!(client.query(sql).value().contains("SELECT user, price > 0"), "{sql}");
    }
    server.database.session().execute("DROP VIEW paid").unwrap();
    assert_eq!(client.query("SELECT count(*) FROM pg_views").value(), "0");
}

#[test]
fn a_series_has_all_its_numbers() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    for (arguments, count, last) in [
        ("1, 20000", "20000", Some("20000")),
        ("5, 1, -2", "3", Some("5")),
        ("2, 1, 3", "0", None),
        ("9223372036854775806, 9223372036854775807", "2", Some("9223372036854775807")),
        (
            "-9223372036854775807, 9223372036854775807, 9223372036854775807",
            "3",
            Some("9223372036854775807"),
        ),
        ("1, NULL", "0", None),
    ] {
        let sql = format!("SELECT count(*), max(n) FROM generate_series({arguments}) AS n");
        let found = client.query(&sql);
        assert_eq!(found.texts(), [[Some(count), last]], "{sql}: {found:?}");
    }
    for (arguments, code) in [
        ("1, 1000000", "54001"),
        ("-9223372036854775807, 9223372036854775807", "54001"),
        ("1, 2, 0", "22023"),
        ("'2024-01-01', '2024-02-01', '1 day'", "0A000"),
    ] {
        let sql = format!("SELECT count(*) FROM generate_series({arguments}) AS n");
        assert_eq!(client.query(&sql).code(), code, "{sql}");
    }
}

#[test]
fn queries_of_catalogs_have_the_limits_of_the_session() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let long = "SELECT (SELECT count(*) FROM pg_type b, pg_type c, pg_type d \
                WHERE b.oid + c.oid + d.oid > a.oid) FROM pg_type a";
    client.query("SET statement_timeout = '20ms'");
    assert_eq!(client.query(long).code(), "57014");
    client.query("SET statement_timeout = '0'");
    client.query("SET memory_limit = '1MB'");
    let large = "SELECT a.typname, b.typname, c.typname FROM pg_type a, pg_type b, pg_type c";
    let refused = client.query(large);
    assert_eq!(refused.code(), "53200", "{:?}", refused.errors);
    assert_eq!(client.query("SELECT count(*) FROM pg_am").value(), "1");
    client.query("SET memory_limit = '0'");
    client.send(&frame(b'Q', &texts(&[long])));
    while !server.database.sessions().iter().any(|session| session.running.is_some()) {
        std::thread::yield_now();
    }
    let (process, secret) = client.key.unwrap();
    let mut canceller = server.connect_postgres();
    canceller.send(&packet(80_877_102, &[process.to_be_bytes(), secret.to_be_bytes()].concat()));
    assert_eq!(client.reply().code(), "57014");
}

/// A result of a function has the limit of the dialect's functions, and is refused before it is built.
#[test]
fn texts_of_catalogs_have_the_limits_of_functions() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let (long, commas) = ("a".repeat(1 << 20), ",".repeat(1 << 18));
    for expression in [
        "replace(v, 'a', v)",
        "v || v || v",
        "concat(v, v, v)",
        "concat_ws(v, 'a', 'b', 'c', 'd')",
        "format('%s%s%s', v, v, v)",
        "array_to_string(ARRAY['a', 'b', 'c', 'd'], v)",
        "array_to_string(ARRAY[v, v, v], '')",
        "ARRAY[v, v, v]::text",
        "(ARRAY[v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v])::text",
        "string_to_array(c, ',')",
        "parse_ident(replace(c, ',', '.'))",
        "('{' || c || '}')::text[]",
        "(SELECT string_agg(v, v) FROM generate_series(1, 3))",
        "(SELECT string_agg('a', v) FROM generate_series(1, 1000))",
        "(SELECT array_agg(n) FROM generate_series(1, 200000) n)",
        "string_to_array(left(c, 100000), ',') || string_to_array(left(c, 100000), ',')",
    ] {
        let sql = format!(
            "SELECT length(x::text) FROM (SELECT {expression} AS x FROM (SELECT '{long}' AS v, \
             '{commas}' AS c FROM pg_am) s) t"
        );
        let refused = client.query(&sql);
        assert_eq!(refused.code(), "54000", "{expression}: {:?}", refused.errors);
    }
    let sql =
        format!("SELECT length(translate(v, v, v) || v) FROM (SELECT '{long}' AS v) s, pg_am");
    assert_eq!(client.query(&sql).value(), (2 << 20).to_string());
    let sql = format!("SELECT length(btrim(v, v || 'b')) FROM (SELECT '{long}' AS v) s, pg_am");
    assert_eq!(client.query(&sql).value(), "0");
    let refused = client.query(&format!("SELECT '{long}' ~ 'a' FROM pg_am"));
    assert_eq!(refused.code(), "54001", "{:?}", refused.errors);
}

/// A function of the select list that returns a set is called once, whatever the number of its rows.
#[test]
fn a_set_of_the_select_list_is_computed_once() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let sets = "generate_series(1, 200000) AS n, generate_series(1, 3) AS m, \
                generate_series(1, generate_series(1, 2)) AS nested";
    let sql = format!("SELECT count(n), count(m), count(nested) FROM (SELECT {sets}) s");
    assert_eq!(client.query(&sql).texts(), [[Some("200000"), Some("3"), Some("2")]]);
}

/// A single value may take longer than a statement may run.
#[test]
fn work_within_a_row_of_catalogs_is_interrupted_and_counted() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    let (text, part) = ("a".repeat(500_000), "a".repeat(200_000));
    let numbers: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let array = format!("'{{{}}}'::text[]", numbers.join(","));
    let others = format!("'{{{}}}'::text[]", numbers.join("x,"));
    client.query("SET statement_timeout = '50ms'");
    for expression in [
        format!("'{text}' LIKE '%{part}b%'"),
        format!("{array} && {others}"),
        format!(
            "(SELECT count(*) FROM generate_series(1, 400000) n WHERE n::text = ANY({others}))"
        ),
        format!(
            "(SELECT count(*) FROM generate_series(1, 400000) n WHERE n NOT IN (-1{}))",
            ", -2".repeat(20_000)
        ),
    ] {
        let found = client.query(&format!("SELECT {expression} FROM pg_am"));
        assert_eq!(found.code(), "57014", "{}: {:?}", &expression[..20], found.errors);
    }
    client.query("SET statement_timeout = '0'; SET memory_limit = '8MB'");
    let text = "a".repeat(4_000);
    for query in [
        format!(
            "SELECT count(x) FROM (SELECT array_agg(n || '{text}') AS x FROM generate_series(1, 4000) n) s"
        ),
        format!(
            "SELECT count(*) FROM (SELECT DISTINCT n || '{text}' FROM generate_series(1, 4000) n) s"
        ),
        format!("SELECT count(*) FROM generate_series(1, 4000) n GROUP BY n || '{text}'"),
        format!(
            "SELECT row_number() OVER (ORDER BY n || '{text}') FROM generate_series(1, 4000) n"
        ),
        format!("SELECT n || '{text}' FROM generate_series(1, 1200) n"),
        format!(
            "WITH RECURSIVE t AS (SELECT 1 AS n, '{text}' AS v UNION SELECT n + 1, v || n FROM t) SELECT count(*) FROM t, pg_am"
        ),
        "SELECT generate_series(1, 400000) FROM pg_am".to_owned(),
        "SELECT count(*) FROM generate_series(1, 400000) n".to_owned(),
    ] {
        let found = client.query(&query);
        assert_eq!(found.code(), "53200", "{}: {:?}", query.replace(&text, "…"), found.errors);
    }
    assert_eq!(client.query("SELECT count(*) FROM pg_am").value(), "1");
}

#[test]
fn other_queries_of_catalogs_are_refused_by_name() {
    let server = TestServer::start(&[], SETUP);
    let mut client = server.session_postgres(&[]);
    for (sql, code) in [
        ("SELECT * FROM pg_nothing", "0A000"),
        ("SELECT pg_nothing(oid) FROM pg_class", "0A000"),
        ("SELECT relkind FROM pg_class GROUP", "42601"),
        ("SELECT relname FROM pg_class JOIN orders ON true", "42P01"),
        ("SELECT nothing.relname FROM pg_class c", "42703"),
        ("SELECT oid FROM pg_class UNION SELECT oid, 1 FROM pg_type", "42601"),
        ("SELECT (SELECT oid FROM pg_type) FROM pg_class", "21000"),
        ("SELECT 1 FROM pg_class, (VALUES (1), (2, 3)) AS v", "42601"),
        (
            "WITH RECURSIVE n AS (SELECT 1 UNION ALL SELECT 1, 2 FROM n) SELECT * FROM pg_class, n",
            "42601",
        ),
        ("SELECT corr(oid, oid) OVER w FROM pg_class WINDOW w AS ()", "0A000"),
        ("SELECT 'nothing'::regclass", "42P01"),
        ("SELECT oid FROM pg_class WHERE oid = 'x'::oid", "22P02"),
        (
            "SELECT 1 FROM pg_class a, pg_type b, pg_type c, pg_type d, pg_type e, pg_type f, pg_type g, pg_type h",
            "54001",
        ),
    ] {
        let failed = client.query(sql);
        assert_eq!(failed.code(), code, "{sql}: {failed:?}");
    }
    let deep = format!("SELECT {}1{} FROM pg_class", "(".repeat(200), ")".repeat(200));
    assert_eq!(client.query(&deep).code(), "54001");
    // Such a chain is a tree that is as deep as the chain is long.
    let chain =
        |count: usize| format!("SELECT 1 FROM pg_am WHERE {}true", "1 = 2 OR ".repeat(count));
    assert_eq!(client.query(&chain(900)).value(), "1");
    assert_eq!(client.query(&chain(100_000)).code(), "54001");
    // What may be read in two ways is not read twice at each level.
    let nested = |begin: &str, inner: &str, end: &str, count: usize| {
        format!("SELECT {}{inner}{} FROM pg_am", begin.repeat(count), end.repeat(count))
    };
    assert_eq!(client.query(&nested("lower(", "'A'", ")", 24)).value(), "a");
    assert_eq!(client.query(&nested("coalesce((SELECT ", "'a'", "))", 12)).value(), "a");
    for query in [
        nested("position(", "'a'", ", 'b')", 24),
        nested("substring(", "'a' 'b'", " FROM 1)", 24),
        nested("(SELECT * FROM ((SELECT * FROM (", "(SELECT 1 error error)", ")))", 20),
    ] {
        let code = client.query(&query).code().to_owned();
        assert!(["54001", "42601"].contains(&code.as_str()), "{query}: {code}");
    }
    let list = format!("SELECT 1 FROM pg_am WHERE 'x' NOT IN ('a'{})", ", 'b'".repeat(20_000));
    assert_eq!(client.query(&list).value(), "1");
}

#[test]
fn catalogs_show_what_the_user_may_see() {
    let server = TestServer::start(&[("server.authentication", "users")], SETUP);
    server.database.session().execute("GRANT SELECT ON default.clicks TO ann").unwrap();
    let mut client = server.connect_postgres();
    assert_eq!(scram(&mut client, "ann", "secret").status, 'I');
    let found = client.query("SELECT relname FROM pg_class WHERE relkind = 'r'");
    assert_eq!(found.value(), "clicks");
    assert_eq!(client.query("SELECT usename FROM pg_user").value(), "ann");
    assert_eq!(client.query("SELECT proname FROM pg_proc").rows.len(), 0);
}

/// A name is looked up where its schema says, and a privilege is that of the engine.
#[test]
fn names_in_texts_have_a_schema_and_privileges_are_those_of_the_user() {
    let server = TestServer::start(&[("server.authentication", "users")], SETUP);
    let root = server.database.session();
    root.execute("CREATE VIEW seen AS SELECT a FROM clicks; GRANT SELECT ON default.clicks TO ann")
        .unwrap();
    let mut client = server.connect_postgres();
    assert_eq!(scram(&mut client, "ann", "secret").status, 'I');
    for (expression, expected) in [
        ("'public.clicks'::regclass", "clicks"),
        ("to_regclass('\"public\".\"clicks\"')", "clicks"),
        ("to_regclass('default.public.clicks')", "clicks"),
        ("coalesce(to_regclass('other.clicks')::text, 'none')", "none"),
        ("coalesce(to_regclass('pg_catalog.clicks')::text, 'none')", "none"),
        ("coalesce(to_regclass('public.pg_class')::text, 'none')", "none"),
        ("to_regclass('pg_catalog.pg_class')", "pg_class"),
        ("coalesce(to_regtype('public.int4')::text, 'none')", "none"),
        ("'pg_catalog.int4'::regtype", "integer"),
        ("has_table_privilege('clicks', 'SELECT')", "t"),
        ("has_table_privilege('public.clicks', 'select')", "t"),
        ("has_table_privilege('ann', 'public.clicks', 'INSERT, DELETE')", "f"),
        ("has_table_privilege('ann', 'public.clicks', 'INSERT, SELECT')", "t"),
        ("has_table_privilege('clicks'::regclass, 'UPDATE')", "f"),
        ("has_table_privilege('pg_catalog.pg_class', 'SELECT')", "t"),
        ("has_any_column_privilege('clicks', 'SELECT')", "t"),
        ("has_column_privilege('clicks', 'a', 'INSERT')", "f"),
        ("has_schema_privilege('public', 'USAGE')", "t"),
    ] {
        let found = client.query(&format!("SELECT {expression} FROM pg_am"));
        assert_eq!(found.value(), expected, "{expression}: {:?}", found.errors);
    }
    for (expression, code) in [
        ("'other.clicks'::regclass", "3F000"),
        ("has_table_privilege('other.clicks', 'SELECT')", "3F000"),
        ("has_table_privilege('orders', 'SELECT')", "42P01"),
        ("has_table_privilege('eve', 'clicks', 'SELECT')", "42704"),
        ("has_table_privilege('clicks', 'READ')", "22023"),
        ("'elsewhere.public.clicks'::regclass", "0A000"),
        ("'a.b.c.d'::regclass", "42602"),
        ("has_schema_privilege('other', 'USAGE')", "3F000"),
    ] {
        let found = client.query(&format!("SELECT {expression} FROM pg_am"));
        assert_eq!(found.code(), code, "{expression}: {:?}", found.errors);
    }
}
