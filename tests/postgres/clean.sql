-- Everything that a test has left behind is taken out again; what the migrations made stays.
-- No trigger sees it: tests leave what nobody else may take out.
SET session_replication_role = 'replica';

DO $$
DECLARE
    one record;
BEGIN
    -- What is dead stays in a small table, which is quicker, and does not pile up in a large one.
    FOR one IN SELECT oid::regclass AS name, pg_relation_size(oid) AS size FROM pg_class
        WHERE relnamespace = 'detent'::regnamespace AND relkind = 'r'
            AND relname NOT IN ('meta', 'sequencer', 'tail_sequencer')
    LOOP
        IF one.size > 500000 THEN
            EXECUTE format('TRUNCATE %s', one.name);
        ELSE
            EXECUTE format('DELETE FROM %s', one.name);
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
