-- How interested is this user in this item, at this moment? One line of text for the model.
--
-- The four tables have the same columns. The windows named `did_…` contain clicks, carts and orders
-- and no impressions; those named `seen_…` contain the impressions too.

SELECT
  i.event_id AS event_id,
  csv(
    -- The item: how popular it is, as the share of its impressions that was clicked.
    continuous(count_where(i.item, i.action = 'click') OVER seen_item_1d),
    continuous(count_where(i.item, i.action = 'click') OVER seen_item_1d
      / count_where(i.item, i.action = 'shown') OVER seen_item_1d),
    continuous(count_where(i.item, i.action = 'click') OVER seen_item_7d),
    continuous(count_where(i.item, i.action = 'click') OVER seen_item_7d
      / count_where(i.item, i.action = 'shown') OVER seen_item_7d),
    continuous(count_where(i.item, i.action = 'order') OVER seen_item_7d),
    continuous(i.price),
    discrete(i.category, 1000),
    discrete(i.brand, 1000),

    -- What the user is looking for right now: the last thirty minutes.
    continuous(count(i.item) OVER did_30m),
    discrete(last_value(i.category) OVER did_30m, 1000),
    continuous(last_value(i.category) OVER did_30m = i.category),
    continuous(count(i.item) OVER did_category_30m),
    continuous(count_where(i.item, i.action = 'shown') OVER seen_category_30m),

    -- What the user likes: the last two weeks, by category, brand and price.
    continuous(count(i.item) OVER did_14d),
    continuous(count(i.item) OVER did_category_14d / count(i.item) OVER did_14d),
    continuous(count_where(i.item, i.action = 'cart') OVER did_category_14d),
    continuous((i.ts - max(i.ts) OVER did_category_14d) / 3600000.0),
    continuous(count_where(i.item, i.action = 'click') OVER seen_category_14d
      / count_where(i.item, i.action = 'shown') OVER seen_category_14d),
    continuous(count(i.item) OVER did_brand_14d / count(i.item) OVER did_14d),
    continuous(count_where(i.item, i.action = 'click') OVER seen_brand_14d
      / count_where(i.item, i.action = 'shown') OVER seen_brand_14d),
    continuous(i.price / avg(i.price) OVER did_14d),

    -- The user and this very item.
    continuous(count_where(i.item, i.action = 'shown') OVER seen_same_14d),
    continuous(count_where(i.item, i.action = 'click') OVER seen_same_14d),
    continuous(count_where(i.item, i.action = 'order') OVER seen_same_14d)
  ) AS line

FROM impressions AS i

WINDOW
  seen_item_1d AS (UNION clicks, carts, orders PARTITION BY i.item ORDER BY i.ts
    ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME EXCLUDE CURRENT_ROW),
  seen_item_7d AS (UNION clicks, carts, orders PARTITION BY i.item ORDER BY i.ts
    ROWS_RANGE BETWEEN 7d PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME EXCLUDE CURRENT_ROW),
  did_30m AS (UNION clicks, carts, orders PARTITION BY i.user ORDER BY i.ts
    ROWS_RANGE BETWEEN 30m PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  did_14d AS (UNION clicks, carts, orders PARTITION BY i.user ORDER BY i.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  did_category_30m AS (UNION clicks, carts, orders PARTITION BY i.user, i.category ORDER BY i.ts
    ROWS_RANGE BETWEEN 30m PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  did_category_14d AS (UNION clicks, carts, orders PARTITION BY i.user, i.category ORDER BY i.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  did_brand_14d AS (UNION clicks, carts, orders PARTITION BY i.user, i.brand ORDER BY i.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  seen_category_30m AS (UNION clicks, carts, orders PARTITION BY i.user, i.category ORDER BY i.ts
    ROWS_RANGE BETWEEN 30m PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME EXCLUDE CURRENT_ROW),
  seen_category_14d AS (UNION clicks, carts, orders PARTITION BY i.user, i.category ORDER BY i.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME EXCLUDE CURRENT_ROW),
  seen_brand_14d AS (UNION clicks, carts, orders PARTITION BY i.user, i.brand ORDER BY i.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME EXCLUDE CURRENT_ROW),
  seen_same_14d AS (UNION clicks, carts, orders PARTITION BY i.user, i.item ORDER BY i.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME EXCLUDE CURRENT_ROW)
