-- Is this payment a fraud? What is known about it in the moment in which it is made.

SELECT
  t.tx_id AS tx_id,

  -- The payment itself.
  t.amount AS amount,
  hour(t.ts) AS hour_of_day,
  t.channel = 'web' AS is_web,

  -- The merchant, as it was registered at the time of the payment.
  merchants.category AS category,
  (t.ts - merchants.ts) / 86400000.0 AS merchant_days,

  -- The card against its own history: `card_30d` does not contain the payment itself.
  count(t.amount) OVER card_30d AS card_30d_payments,
  t.amount / avg(t.amount) OVER card_30d AS amount_to_card_avg,
  t.amount / max(t.amount) OVER card_30d AS amount_to_card_max,
  (t.amount - avg(t.amount) OVER card_30d)
    / greatest(stddev(t.amount) OVER card_30d, 1.0) AS amount_z,
  (t.ts - max(t.ts) OVER card_30d) / 60000.0 AS card_idle_minutes,

  -- How much happens on the card right now.
  count(t.amount) OVER card_1h AS card_1h_payments,
  sum(t.amount) OVER card_1h AS card_1h_amount,
  distinct_count(t.merchant) OVER card_1h AS card_1h_merchants,
  count(t.amount) OVER card_1d AS card_1d_payments,
  sum(t.amount) OVER card_1d / sum(t.amount) OVER card_30d AS card_1d_to_30d_amount,
  distinct_count(t.device) OVER card_1d AS card_1d_devices,
  min(t.amount) OVER card_1d AS card_1d_amount_min,

  -- First-seen times: since when is the card seen with this device, and at this merchant?
  (t.ts - min(t.ts) OVER card_device) / 3600000.0 AS card_device_hours,
  (t.ts - min(t.ts) OVER card_merchant) / 3600000.0 AS card_merchant_hours,

  -- The device: how old is it, and how many cards does it pay with?
  (t.ts - min(t.ts) OVER device_all) / 3600000.0 AS device_hours,
  count(t.amount) OVER device_1h AS device_1h_payments,
  distinct_count(t.card) OVER device_1h AS device_1h_cards,
  distinct_count(t.card) OVER device_7d AS device_7d_cards,
  count(t.amount) OVER device_7d AS device_7d_payments,

  -- The merchant: more small amounts, more cards, higher amounts than usual?
  count(t.amount) OVER merchant_1h AS merchant_1h_payments,
  count_where(t.amount, t.amount < 5.0) OVER merchant_1h AS merchant_1h_small,
  distinct_count(t.card) OVER merchant_1h AS merchant_1h_cards,
  count(t.amount) OVER merchant_1h / (count(t.amount) OVER merchant_7d / 168.0) AS merchant_1h_to_7d,
  t.amount / avg(t.amount) OVER merchant_7d AS amount_to_merchant_avg,

  -- Frauds that have been reported by now. `reports` has the time of the report, not of the fraud.
  count(t.amount) OVER merchant_reports_14d AS merchant_14d_reports,
  (t.ts - device_report.ts) / 86400000.0 AS device_report_days,
  ifnull((t.ts - card_report.ts) / 86400000.0, 9999.0) AS card_report_days

FROM transactions AS t
LAST JOIN merchants ORDER BY merchants.ts
  ON t.merchant = merchants.merchant AND merchants.ts <= t.ts
LAST JOIN reports AS device_report ORDER BY device_report.ts
  ON t.device = device_report.device AND device_report.ts <= t.ts
LAST JOIN reports AS card_report ORDER BY card_report.ts
  ON t.card = card_report.card AND card_report.ts <= t.ts

WINDOW
  card_1h AS (PARTITION BY t.card ORDER BY t.ts
    ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW),
  card_1d AS (PARTITION BY t.card ORDER BY t.ts
    ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW),
  card_30d AS (PARTITION BY t.card ORDER BY t.ts
    ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW EXCLUDE CURRENT_ROW),
  card_device AS (PARTITION BY t.card, t.device ORDER BY t.ts
    ROWS_RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
  card_merchant AS (PARTITION BY t.card, t.merchant ORDER BY t.ts
    ROWS_RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
  device_all AS (PARTITION BY t.device ORDER BY t.ts
    ROWS_RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
  device_1h AS (PARTITION BY t.device ORDER BY t.ts
    ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW),
  device_7d AS (PARTITION BY t.device ORDER BY t.ts
    ROWS_RANGE BETWEEN 7d PRECEDING AND CURRENT ROW),
  merchant_1h AS (PARTITION BY t.merchant ORDER BY t.ts
    ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW),
  merchant_7d AS (PARTITION BY t.merchant ORDER BY t.ts
    ROWS_RANGE BETWEEN 7d PRECEDING AND CURRENT ROW),
  merchant_reports_14d AS (UNION reports PARTITION BY t.merchant ORDER BY t.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW
    INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW)
