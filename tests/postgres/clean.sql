-- Everything that a test has left behind is taken out again; what the migrations made stays.
-- No trigger sees it: tests leave what nobody else may take out.
SET session_replication_role = 'replica';

DO $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT tablename AS name FROM pg_tables WHERE schemaname = 'detent' LOOP
        IF one.name NOT IN ('meta', 'sequencer', 'tail_sequencer') THEN
            EXECUTE format('DELETE FROM detent.%I', one.name);
        END IF;
    END LOOP;
    FOR one IN SELECT sequencename AS name FROM pg_sequences WHERE schemaname = 'detent' LOOP
        PERFORM setval(format('detent.%I', one.name), 1, false);
    END LOOP;
    -- What somebody kept beside our schema.
    FOR one IN SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('DROP TABLE public.%I CASCADE', one.name);
    END LOOP;
    UPDATE detent.sequencer SET
        snapshot = pg_current_snapshot(), target = NULL, after = 0, pos = 0, floor = 0;
    UPDATE detent.tail_sequencer SET
        snapshot = pg_current_snapshot(), target = NULL, after = 0, pos = 0, floor = 0;
END
$$;

RESET session_replication_role
