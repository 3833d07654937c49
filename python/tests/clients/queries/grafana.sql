-- Panels of Grafana over a table, as the macros of its PostgreSQL data source write them. Run by
-- test_tool_queries.py.

-- $__timeFilter and $__timeGroupAlias
SELECT floor(extract(epoch from sold_at)/86400)*86400 AS "time", sum(amount) AS "value" FROM sales
WHERE sold_at BETWEEN '2024-01-01T00:00:00Z' AND '2024-02-28T23:59:59.999Z'
GROUP BY 1 ORDER BY 1

-- $__timeEpoch
SELECT extract(epoch from sold_at) as "time", product AS metric, amount FROM "public"."sales"
WHERE sold_at BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-31T23:59:59Z' ORDER BY 1

-- $__unixEpochFilter
SELECT count(*) AS n FROM sales WHERE extract(epoch from sold_at) >= 1704067200 AND extract(epoch from sold_at) <= 1706745600

-- builder
SELECT product, AVG(amount) FROM public.sales WHERE (sold_at >= '2024-01-01T00:00:00Z' AND sold_at <= '2024-12-31T00:00:00Z')
GROUP BY product ORDER BY product LIMIT 50

-- values of a variable
SELECT DISTINCT product AS __text, product AS __value FROM "public"."sales" ORDER BY 1

-- annotations
SELECT sold_at AS time, product AS text, 'sale' AS tags FROM sales
WHERE sold_at BETWEEN '2024-01-01T00:00:00Z' AND '2024-12-31T00:00:00Z' AND amount >= 20 ORDER BY sold_at LIMIT 100
