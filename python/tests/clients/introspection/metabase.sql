-- What Metabase asks of a PostgreSQL server when it reads a database, in its forms: tables with their
-- privileges, fields, keys, indexes, estimates of rows. Written after its
-- driver at commit 370249b5; run by test_introspection.py.

-- schemas that may be read
SELECT n.nspname AS "schema" FROM pg_catalog.pg_namespace n
WHERE n.nspname !~ '^pg_(toast|temp)' AND n.nspname <> 'information_schema'
    AND has_schema_privilege(n.nspname, 'USAGE') ORDER BY n.nspname
-- = schema
-- = pg_catalog
-- = public

-- tables
SELECT n.nspname AS "schema", c.relname AS "name",
    CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW'
        WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' END AS "type",
    d.description, s.n_live_tup AS "estimated-row-count"
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
LEFT JOIN pg_catalog.pg_description AS d
    ON c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
LEFT JOIN pg_stat_user_tables AS s ON n.nspname = s.schemaname AND c.relname = s.relname
WHERE c.relnamespace = n.oid AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    AND c.relkind IN ('r', 'p', 'v', 'f', 'm') AND n.nspname IN ('public')
ORDER BY "type", "schema", "name"
-- = schema|name|type|description|estimated-row-count
-- = public|numbers|TABLE||10
-- = public|orders|TABLE||1

-- privileges
WITH privileges AS (
    SELECT NULL AS role, t.schemaname AS schema, t.name AS table,
        pg_catalog.has_any_column_privilege(current_user, format('%I.%I', t.schemaname, t.name), 'update') AS update,
        pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"."' || t.name || '"', 'select') AS select,
        pg_catalog.has_table_privilege(current_user, '"' || t.schemaname || '"."' || t.name || '"', 'delete') AS delete
    FROM (
        SELECT schemaname, tablename AS name FROM pg_catalog.pg_tables
        UNION SELECT schemaname, viewname FROM pg_catalog.pg_views
        UNION SELECT schemaname, matviewname FROM pg_catalog.pg_matviews
    ) t
    WHERE t.schemaname !~ '^pg_' AND t.schemaname <> 'information_schema'
        AND pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')
)
SELECT p.* FROM privileges p ORDER BY p.table
-- = role|schema|table|update|select|delete
-- = |public|numbers|True|True|True
-- = |public|orders|True|True|True

-- fields
SELECT c.column_name AS name,
    CASE WHEN c.udt_schema IN ('public', 'pg_catalog') THEN format('%s', c.udt_name)
        ELSE format('"%s"."%s"', c.udt_schema, c.udt_name) END AS "database-type",
    c.ordinal_position - 1 AS "database-position", c.table_schema AS "table-schema", c.table_name AS "table-name",
    pk.column_name IS NOT NULL AS "pk?",
    ((column_default IS NULL OR LOWER(column_default) = 'null') AND is_nullable = 'NO'
        AND NOT ((column_default IS NOT NULL AND column_default LIKE '%nextval(%') OR is_identity <> 'NO')) AS "database-required"
FROM information_schema.columns AS c
LEFT JOIN (
    SELECT tc.table_schema, tc.table_name, kc.column_name
    FROM information_schema.table_constraints AS tc
    INNER JOIN information_schema.key_column_usage AS kc ON tc.constraint_name = kc.constraint_name
    WHERE tc.constraint_type = 'PRIMARY KEY'
) AS pk ON c.table_schema = pk.table_schema AND c.table_name = pk.table_name AND c.column_name = pk.column_name
WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND c.table_name IN ('orders')
ORDER BY "table-schema", "table-name", "database-position"
-- = name|database-type|database-position|table-schema|table-name|pk?|database-required
-- = user|text|0|public|orders|False|True
-- = price|float8|1|public|orders|False|False
-- = ts|timestamptz|2|public|orders|False|False
-- = ok|bool|3|public|orders|False|False
-- = day|date|4|public|orders|False|False

-- fields with comments, and those of materialized views
SELECT c.column_name AS name,
    col_description(CAST(CAST(format('%I.%I', CAST(c.table_schema AS text), CAST(c.table_name AS text)) AS regclass) AS oid),
        c.ordinal_position) AS "field-comment"
FROM information_schema.columns c WHERE c.table_name = 'numbers'
UNION ALL
SELECT a.attname, NULL FROM pg_catalog.pg_class v
JOIN pg_catalog.pg_attribute a ON a.attrelid = v.oid WHERE v.relkind = 'm' AND a.attnum >= 1
ORDER BY name
-- = name|field-comment
-- = number|

-- first columns of indexes
SELECT found."table-name", trim(BOTH '"' FROM pg_catalog.pg_get_indexdef(found.number, found.pos, false)) AS "field-name"
FROM (SELECT t.relname AS "table-name", ci.oid AS number, (information_schema._pg_expandarray(i.indkey)).n AS pos
    FROM pg_catalog.pg_class t JOIN pg_catalog.pg_index i ON t.oid = i.indrelid
    JOIN pg_catalog.pg_class ci ON ci.oid = i.indexrelid
    WHERE pg_catalog.pg_get_expr(i.indpred, i.indrelid) IS NULL) found
WHERE found.pos = 1
-- = table-name|field-name
-- = orders|user

-- foreign keys
SELECT fn.nspname AS "fk-table-schema", fc.relname AS "fk-table-name", fa.attname AS "fk-column-name",
    pc.relname AS "pk-table-name", pa.attname AS "pk-column-name"
FROM pg_constraint AS k
JOIN pg_class AS fc ON k.conrelid = fc.oid
JOIN pg_namespace AS fn ON k.connamespace = fn.oid
JOIN pg_attribute AS fa ON k.conrelid = fa.attrelid
JOIN pg_class AS pc ON k.confrelid = pc.oid
JOIN pg_attribute AS pa ON k.confrelid = pa.attrelid
WHERE fn.nspname !~ '^information_schema|catalog_history|pg_' AND k.contype = 'f'
    AND fa.attnum = ANY (k.conkey) AND pa.attnum = ANY (k.confkey)
ORDER BY "fk-table-schema", "fk-table-name"
-- = fk-table-schema|fk-table-name|fk-column-name|pk-table-name|pk-column-name

-- indexed columns
SELECT t.relname AS "table-name", a.attname AS "field-name", i.indisunique
FROM (SELECT indrelid, indisvalid, indisunique, unnest(indkey) AS number, generate_subscripts(indkey, 1) AS place
    FROM pg_catalog.pg_index) AS i
JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.number
WHERE i.indisvalid AND i.place = 0 AND n.nspname = 'public'
-- = table-name|field-name|indisunique
-- = orders|user|False

-- enumerations
SELECT n.nspname AS schema, t.typname AS name, array_agg(e.enumlabel ORDER BY e.enumsortorder) AS labels
FROM pg_type t JOIN pg_enum e ON t.oid = e.enumtypid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace GROUP BY n.nspname, t.typname
-- = schema|name|labels
