INSERT INTO detent.meta (name, value) VALUES
    ('schema_version', '{{version}}'), ('min_code', '{{min_code}}')
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

INSERT INTO detent.meta (name, value) VALUES ('store_id', '{{store_id}}') ON CONFLICT DO NOTHING;
