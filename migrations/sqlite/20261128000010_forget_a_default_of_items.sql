-- Another default held when these items were created, so their creation does not tell whether the
-- request named `max_hold_seconds`. Without it, a repeat of that request is known again.
UPDATE items SET as_created = json_remove(as_created, '$.max_hold_seconds')
WHERE max_hold_seconds <> hold_seconds AND max_hold_seconds = max(hold_seconds, 3600);
