-- What Grafana's PostgreSQL data source asks of a server, in its forms: the version, extensions, schemas,
-- tables in the search path, columns of a table. Written after its data source
-- at commit 12f912ab; run by test_introspection.py.

-- version of the server
SELECT current_setting('server_version_num')::int / 100 AS version
-- = version
-- = 1600

-- extensions
SELECT x.extversion FROM pg_extension x WHERE x.extname = 'timescaledb'
-- = extversion

-- schemas
SELECT schema_name AS "name" FROM information_schema.schemata
WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name
-- = name
-- = public

-- tables of a schema
SELECT quote_ident(table_name) AS "table" FROM information_schema.tables
WHERE quote_ident(table_schema) = 'public' ORDER BY 1
-- = table
-- = numbers
-- = orders

-- tables, with those in the search path first
SELECT CASE WHEN quote_ident(t.table_schema) IN (
        SELECT CASE WHEN trim(path[at]) = '"$user"' THEN user ELSE trim(path[at]) END
        FROM generate_series(
            array_lower(string_to_array(current_setting('search_path'), ','), 1),
            array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS at,
            string_to_array(current_setting('search_path'), ',') path)
    THEN quote_ident(t.table_name)
    ELSE quote_ident(t.table_schema) || '.' || quote_ident(t.table_name) END AS "table"
FROM information_schema.tables t
WHERE quote_ident(t.table_schema) NOT IN ('information_schema', 'pg_catalog')
ORDER BY CASE WHEN quote_ident(t.table_schema) IN (
        SELECT trim(path[at]) FROM generate_series(1, 2) AS at,
            string_to_array(current_setting('search_path'), ',') path)
    THEN 0 ELSE 1 END, 1
-- = table
-- = numbers
-- = orders

-- columns of a table
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
WHERE CASE WHEN array_length(parse_ident('orders'), 1) = 2
    THEN quote_ident(table_schema) = (parse_ident('orders'))[1]
        AND quote_ident(table_name) = (parse_ident('orders'))[2]
    ELSE quote_ident(table_name) = 'orders' AND quote_ident(table_schema) IN ('public') END
-- = column|type
-- = user|text
-- = price|double precision
-- = ts|timestamp with time zone
-- = ok|boolean
-- = day|date
