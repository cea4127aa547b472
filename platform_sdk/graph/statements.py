"""SQL statements of the merge, in the order in which they are executed."""

from __future__ import annotations

MACROS = r"""
CREATE MACRO plain(name) AS trim(regexp_replace(lower(nfc_normalize(name)), '\s+', ' ', 'g'));
CREATE MACRO normal(name) AS coalesce(nullif(trim(plain(name), ' ''"“”‘’.,;:!?'), ''), plain(name));
CREATE MACRO short(text) AS substr(sha256(text), 1, 20);
"""

TITLES = r"""
CREATE TABLE exact AS
    SELECT normal(title) AS key, min(title) AS name, min(passage) AS passage FROM titles WHERE trim(title) <> ''
    GROUP BY normal(title);
CREATE TABLE shortened AS
    SELECT short AS key, min(key) AS entity, min(passage) AS passage
    FROM (SELECT key, passage, normal(regexp_replace(name, '\s*\([^()]*\)$', '')) AS short FROM exact)
    WHERE short <> key AND short NOT IN (SELECT key FROM exact) GROUP BY short HAVING count(*) = 1;
"""

# One row for each fact; a chunk without facts has a row without text. Lists of structs never take part in a join, since
# joins of them do not spill.
FACTS = """
CREATE TABLE facts AS
    SELECT chunk, malformed, fact.text AS text, fact.source AS source, fact.entities AS entities,
           CASE WHEN fact.source.passage = '' THEN normal(fact.entities[1].name) END AS head
    FROM (
        SELECT chunk, malformed, unnest(CASE WHEN len(facts) = 0 THEN [NULL] ELSE facts END) AS fact
        FROM read_json($paths, format = 'newline_delimited', columns = {
            chunk: 'VARCHAR', malformed: 'VARCHAR[]', facts: 'STRUCT("text" VARCHAR,
                entities STRUCT("name" VARCHAR, "type" VARCHAR, description VARCHAR, alias VARCHAR, rule VARCHAR)[],
                source STRUCT(passage VARCHAR, "start" BIGINT, "end" BIGINT))[]'})
        WHERE chunk IS NOT NULL
    )
"""

# A chunk has a row for each fact, with all of its malformed records.
MALFORMED_RECORDS = """
CREATE TABLE malformed AS
    SELECT chunk, unnest(malformed) AS record
    FROM (SELECT DISTINCT chunk, malformed FROM facts WHERE len(malformed) > 0)
"""

# Two facts are one hyperedge if text and source are equal, as happens in overlapping chunks. From here on, rows of
# sorted tables stand for hyperedges, names and entities: numbers are joined and sorted much faster than texts.
HYPEREDGES = """
CREATE TABLE heads AS
    SELECT head, coalesce(exact.passage, shortened.passage) AS passage
    FROM (SELECT DISTINCT head FROM facts WHERE head IS NOT NULL)
    LEFT JOIN exact ON exact.key = head LEFT JOIN shortened ON shortened.key = head;
CREATE TABLE stated AS
    SELECT *, short(concat_ws(chr(31), text, passage, coalesce("start", -1), coalesce("end", -1))) AS id
    FROM (
        SELECT facts.rowid AS fact, text, coalesce(heads.passage, source.passage) AS passage,
               source."start" AS "start", source."end" AS "end"
        FROM facts LEFT JOIN heads USING (head) WHERE text IS NOT NULL
    );
CREATE TABLE hyperedges AS SELECT DISTINCT id, text, passage, "start", "end" FROM stated ORDER BY id;
CREATE TABLE edges AS SELECT fact, hyperedges.rowid AS edge FROM stated JOIN hyperedges USING (id);
DROP TABLE stated;
CREATE TABLE spelled AS
    SELECT fact, mention.name, mention.rule, mention.type, mention.description, mention.alias
    FROM (SELECT rowid AS fact, unnest(entities) AS mention FROM facts);
DROP TABLE facts;
CREATE TABLE names AS SELECT name, normal(name) AS key FROM (SELECT DISTINCT name FROM spelled) ORDER BY name;
CREATE TABLE named AS
    SELECT edge, names.rowid AS name, rule, type, description, alias
    FROM spelled JOIN names USING (name) JOIN edges USING (fact);
DROP TABLE spelled;
DROP TABLE edges;
"""

# Links of the distinct names: to entities, each with the rule that found it.
LINKS = r"""
CREATE TABLE uses AS
    SELECT used.name, key, found FROM (SELECT DISTINCT name, rule AS found FROM named) used
    JOIN names ON names.rowid = used.name;
CREATE TABLE spans AS SELECT DISTINCT key, found FROM uses WHERE found IN ('span', 'phrase');
CREATE TABLE links AS
    WITH inner_spans AS (
        SELECT key, first_word, last_word, array_to_string(words[first_word:last_word], ' ') AS part
        FROM (SELECT key, words, first_word, unnest(range(first_word + 1, len(words) + 1)) AS last_word
              FROM (SELECT key, string_split(key, ' ') AS words,
                           unnest(range(1, len(string_split(key, ' ')))) AS first_word
                    FROM (SELECT DISTINCT key FROM spans WHERE len(string_split(key, ' ')) BETWEEN 3 AND 12)))
        WHERE last_word - first_word + 1 < len(words)
    ), matched AS (
        SELECT i.key, first_word, last_word, coalesce(exact.key, shortened.entity) AS entity
        FROM inner_spans i LEFT JOIN exact ON exact.key = part LEFT JOIN shortened ON shortened.key = part
        WHERE exact.key IS NOT NULL OR shortened.key IS NOT NULL
    )
    SELECT spans.key, found, coalesce(exact.key, entity, spans.key) AS entity,
           CASE WHEN exact.key IS NOT NULL THEN 'title' WHEN entity IS NOT NULL THEN 'alias' ELSE 'span' END AS rule
    FROM spans LEFT JOIN exact USING (key) LEFT JOIN shortened ON shortened.key = spans.key
    WHERE found = 'span' OR exact.key IS NOT NULL OR entity IS NOT NULL
    UNION ALL
    SELECT DISTINCT key, found, entity, 'within' FROM matched m JOIN spans USING (key)
    WHERE key NOT IN (SELECT key FROM exact) AND NOT EXISTS (
        SELECT 1 FROM matched o WHERE o.key = m.key AND o.first_word <= m.first_word AND m.last_word <= o.last_word
        AND o.last_word - o.first_word > m.last_word - m.first_word);
CREATE TABLE resolved AS
    SELECT name, found, entity AS key, rule FROM uses JOIN links USING (key, found)
    UNION ALL SELECT name, found, key, found FROM uses WHERE found NOT IN ('span', 'phrase');
CREATE TABLE ids AS SELECT short(key) AS id, key FROM (SELECT DISTINCT key FROM resolved) ORDER BY id;
CREATE TABLE targets AS
    SELECT name, found, ids.rowid AS entity, rule FROM resolved JOIN ids USING (key);
CREATE TABLE mentions AS
    SELECT DISTINCT entity, edge, named.name, targets.rule
    FROM named JOIN targets ON targets.name = named.name AND targets.found = named.rule;
"""

# A name that is not a title has the key of its entity. So has a title, but not the other names that are linked to it.
ENTITIES = """
CREATE TABLE spoken AS
    SELECT entity, name, count(*) AS times
    FROM (SELECT DISTINCT entity, name, edge FROM mentions WHERE rule <> 'within') GROUP BY entity, name;
CREATE TABLE told AS
    SELECT DISTINCT entity, edge, type, description, alias
    FROM named JOIN targets ON targets.name = named.name AND targets.found = named.rule
    WHERE targets.rule <> 'within' AND (type <> '' OR description <> '' OR alias <> '');
CREATE TABLE entities AS
    WITH chosen AS (SELECT entity, arg_min(name, (-times, name)) AS name FROM spoken GROUP BY entity),
    other_names AS (
        SELECT entity, names.name AS alias, names.key FROM spoken JOIN names ON names.rowid = spoken.name
        UNION ALL SELECT entity, alias, normal(alias) FROM told WHERE alias <> ''
        UNION ALL SELECT ids.rowid, shortened.key, normal(shortened.key)
        FROM shortened JOIN ids ON ids.key = shortened.entity
    ),
    aliases AS (
        SELECT entity, list_sort(list(alias)) AS aliases FROM (
            SELECT entity, min(alias) AS alias FROM other_names JOIN ids ON ids.rowid = entity
            WHERE other_names.key <> ids.key GROUP BY entity, other_names.key
        ) GROUP BY entity
    ),
    types AS (
        SELECT entity, arg_min(type, (-times, type)) AS type FROM (
            SELECT entity, type, count(*) AS times
            FROM (SELECT DISTINCT entity, edge, type FROM told WHERE type <> '') GROUP BY entity, type
        ) GROUP BY entity
    ),
    descriptions AS (
        SELECT entity, list_sort(list(description)) AS descriptions
        FROM (SELECT DISTINCT entity, description FROM told WHERE description <> '') GROUP BY entity
    ),
    joined AS (
        SELECT ids.id, coalesce(exact.name, names.name) AS name, coalesce(type, '') AS type,
               coalesce(aliases, []) AS aliases, coalesce(descriptions, []) AS descriptions
        FROM ids LEFT JOIN chosen ON chosen.entity = ids.rowid LEFT JOIN names ON names.rowid = chosen.name
        LEFT JOIN exact ON exact.key = ids.key LEFT JOIN types ON types.entity = ids.rowid
        LEFT JOIN descriptions ON descriptions.entity = ids.rowid LEFT JOIN aliases ON aliases.entity = ids.rowid
    )
    SELECT *, name || CASE WHEN type = '' THEN '' ELSE ' (' || type || ')' END
           || CASE WHEN len(descriptions) = 0 THEN '' ELSE ': ' || array_to_string(descriptions, ' ') END AS text
    FROM joined ORDER BY id;
CREATE TABLE incidence AS SELECT DISTINCT edge, entity FROM mentions;
"""

TABLES = {
    "entities": "FROM entities",
    "hyperedges": "FROM hyperedges",
    "mentions": """
        SELECT ids.id AS entity, hyperedges.id AS hyperedge, names.name, rule
        FROM mentions JOIN ids ON ids.rowid = entity JOIN hyperedges ON hyperedges.rowid = edge
        JOIN names ON names.rowid = mentions.name ORDER BY mentions.entity, edge, mentions.name, rule""",
}
