/* Documents by key: what is put stays, and files are merged; what is no such file is refused. */
#include "commands.h"
#include "io/documents.h"
#include "io/store.h"

#include <sqlite3.h>

static struct erg_documents *open_ok(const char *name)
{
    struct erg_documents *documents;
    struct erg_error err;
    assert_ok(erg_documents_open(&documents, in_folder(name), &err), &err);
    return documents;
}

static void put(struct erg_documents *documents, const char *key, double value)
{
    struct erg_error err;
    json_t *about = json_pack("{s:s}", "about", key), *document = json_pack("{s:f}", "v", value);
    assert_ok(erg_documents_put(documents, key, about, document, &err), &err);
    json_decref(about);
    json_decref(document);
}

/* NAN where there is none. */
static double get(struct erg_documents *documents, const char *key)
{
    struct erg_error err;
    json_t *document;
    assert_ok(erg_documents_get(documents, key, &document, &err), &err);
    double value = document ? json_number_value(json_object_get(document, "v")) : NAN;
    json_decref(document);
    return value;
}

static void test_first_stays(void **state)
{
    (void)state;
    struct erg_documents *documents = open_ok("first.db");
    assert_true(isnan(get(documents, "a")));
    put(documents, "a", 0.1);
    put(documents, "a", 0.2);
    assert_near(get(documents, "a"), 0.1, 0);
    erg_documents_close(documents);
    documents = open_ok("first.db");
    assert_near(get(documents, "a"), 0.1, 0);
    erg_documents_close(documents);
}

/* What another program has put there is not taken for a result. */
static void test_empty_documents(void **state)
{
    (void)state;
    static const char *const contents[] = {"{}", "[]", "[1]", "null", "7", ""};
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        struct erg_documents *documents = open_ok("empty.db");
        struct erg_error err = {0};
        json_t *document;
        sqlite3 *database;
        put(documents, "a", 1);
        erg_documents_close(documents);
        assert_int_equal(sqlite3_open(in_folder("empty.db"), &database), SQLITE_OK);
        char *sql = sqlite3_mprintf("UPDATE document SET content = %Q", contents[i]);
        assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_free(sql);
        sqlite3_close(database);
        documents = open_ok("empty.db");
        assert_fails(erg_documents_get(documents, "a", &document, &err), &err, "empty.db");
        erg_documents_close(documents);
    }
}

static void test_merge(void **state)
{
    (void)state;
    struct erg_error err;
    size_t added;
    struct erg_documents *one = open_ok("one.db"), *two = open_ok("two.db");
    put(one, "a", 1);
    put(one, "b", 2);
    put(two, "b", 3);
    put(two, "c", 1 / 3.0);
    erg_documents_close(two);
    assert_ok(erg_documents_merge(one, in_folder("two.db"), &added, &err), &err);
    assert_int_equal(added, 1);
    assert_ok(erg_documents_merge(one, in_folder("two.db"), &added, &err), &err);
    assert_int_equal(added, 0);
    assert_near(get(one, "b"), 2, 0);
    assert_near(get(one, "c"), 1 / 3.0, 0);
    assert_fails(erg_documents_merge(one, in_folder("three.db"), NULL, &err), &err,
                 "there is no such file");
    assert_int_not_equal(access(in_folder("three.db"), F_OK), 0);
    erg_documents_close(one);
}

static void test_other_files(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_documents *documents;
    struct erg_store *store;
    assert_ok(erg_store_open(&store, in_folder("store.db"), &err), &err);
    erg_store_close(store);
    assert_fails(erg_documents_open(&documents, in_folder("store.db"), &err), &err,
                 "a database of another program");
    assert_ok(erg_file_write(in_folder("text.db"), "These are words, no table at all.\n", 34, &err),
              &err);
    assert_fails(erg_documents_open(&documents, in_folder("text.db"), &err), &err,
                 "the file is damaged or no store at all");
    assert_fails(erg_documents_open(&documents, "/nowhere/a.db", &err), &err,
                 "opening the store of documents '/nowhere/a.db'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_stays), cmocka_unit_test(test_empty_documents),
        cmocka_unit_test(test_merge), cmocka_unit_test(test_other_files)};
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
