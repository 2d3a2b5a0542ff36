-- Looks whether the outbox has lost an event. Writes nothing.
-- KEYS  1 outbox
-- ARGV  1 the newest event that the caller knows to have been there
-- Gives {'OK', 1 if it is gone without having been trimmed else 0}
-- One step, because what is trimmed between two looks would seem to be lost.
return {'OK', has_lost(KEYS[1], ARGV[1], last_id(KEYS[1], '')) and 1 or 0}
