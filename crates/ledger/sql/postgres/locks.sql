-- apart

-- name: WEBHOOKS
-- Makes creations wait for each other, so that each counts the ones before it. It stops no
-- publisher and no reader.
LOCK TABLE webhooks IN SHARE UPDATE EXCLUSIVE MODE
