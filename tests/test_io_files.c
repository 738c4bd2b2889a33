/* io/file, io/csv, io/json: what they read, what they write, and what they say when they cannot. */
#define _DEFAULT_SOURCE /* flock */
#include "check.h"
#include "folder.h"
#include "json_file.h"

#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int tear_down(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'", folder);
    return system(command) ? -1 : remove_folder(state);
}

static int entries(const char *path)
{
    char command[300];
    snprintf(command, sizeof command, "ls -A %s | wc -l", path);
    FILE *pipe = popen(command, "r");
    int count = -1;
    if (fscanf(pipe, "%d", &count) != 1)
        count = -1;
    pclose(pipe);
    return count;
}

static void writes_and_reads_back(void **state)
{
    (void)state;
    struct erg_error err;
    const char bytes[] = "a\0b\n";
    assert_ok(erg_dir_make(in_folder("deep/er/folder"), &err), &err);
    assert_ok(erg_dir_make(in_folder("deep/er/folder/"), &err), &err);
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("deep/er/folder/file"));
    assert_ok(erg_file_write(path, "old", 3, &err), &err);
    assert_int_equal(chmod(path, 0666), 0);
    assert_ok(erg_file_write(path, bytes, sizeof bytes, &err), &err);
    char *text;
    size_t length;
    assert_ok(erg_file_read(path, 0, &text, &length, &err), &err);
    assert_int_equal(length, sizeof bytes);
    assert_memory_equal(text, bytes, sizeof bytes);
    free(text);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0666);
    assert_int_equal(entries(in_folder("deep/er/folder")), 1);
    assert_fails(erg_file_read(path, 4, &text, &length, &err), &err, "more than 4 bytes");
    assert_ok(erg_file_read(path, 5, &text, NULL, &err), &err);
    free(text);
}

static void pipes_are_read_to_their_end(void **state)
{
    (void)state;
    struct erg_error err;
    char *text, path[32], bytes[9000];
    size_t length;
    int ends[2];
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, sizeof bytes), sizeof bytes);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_ok(erg_file_read(path, 0, &text, &length, &err), &err);
    assert_int_equal(length, sizeof bytes);
    free(text);
    close(ends[0]);
}

/* One without a writer would be waited for without an end. */
static void a_named_pipe_is_refused(void **state)
{
    (void)state;
    struct erg_error err;
    char *text;
    const char *path = in_folder("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(erg_file_read(path, 0, &text, NULL, &err), &err, "this is a FIFO");
    assert_int_equal(unlink(path), 0);
}

static void leftovers_of_killed_runs_are_removed(void **state)
{
    (void)state;
    struct erg_error err;
    char path[256], left[300], live[300], other[300];
    pid_t ended = fork();
    if (ended == 0)
        _exit(0);
    assert_int_equal(waitpid(ended, NULL, 0), ended);
    snprintf(path, sizeof path, "%s", in_folder("left.json"));
    snprintf(left, sizeof left, "%s.%ld.0.tmp", path, (long)ended);
    snprintf(live, sizeof live, "%s.%ld.7.tmp", path, (long)getpid());
    snprintf(other, sizeof other, "%s.%ld.tmp", path, (long)ended); /* not our name for it */
    const char *const files[] = {left, live, other};
    for (int i = 0; i < 3; i++)
        assert_ok(erg_file_write(files[i], "half", 4, &err), &err);
    int writer = open(live, O_RDONLY);
    assert_int_equal(flock(writer, LOCK_EX), 0); /* as a run that is writing now does */
    assert_ok(erg_file_write(path, "whole", 5, &err), &err);
    close(writer);
    assert_int_not_equal(access(left, F_OK), 0);
    assert_int_equal(access(live, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(access(path, F_OK), 0);
    unlink(live);
    unlink(other);
    unlink(path);
}

static void link_keeps_its_target(void **state)
{
    (void)state;
    struct erg_error err;
    char target[256];
    snprintf(target, sizeof target, "%s", in_folder("target"));
    assert_ok(erg_file_write(target, "1", 1, &err), &err);
    const char *path = in_folder("link");
    assert_int_equal(symlink("target", path), 0);
    assert_ok(erg_file_write(path, "22", 2, &err), &err);
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_size, 2);
}

static void failures_are_sentences(void **state)
{
    (void)state;
    struct erg_error err;
    char *text;
    assert_fails(erg_file_read("/dev/full", 0, &text, NULL, &err), &err,
                 "reading '/dev/full': the file has more than 268435456 bytes");
    assert_fails(erg_file_read("/dev/zero", 1000, &text, NULL, &err), &err, "more than 1000");
    assert_fails(erg_file_read(in_folder("none"), 0, &text, NULL, &err), &err,
                 "none': No such file");
    assert_fails(erg_file_read(folder, 0, &text, NULL, &err), &err, "Is a directory");
    assert_fails(erg_file_write(folder, "x", 1, &err), &err, "this is a folder");
    assert_fails(erg_file_write(in_folder("no/such/file"), "x", 1, &err), &err, "No such file");
    assert_ok(erg_file_write(in_folder("plain"), "x", 1, &err), &err);
    assert_fails(erg_dir_make(in_folder("plain/below"), &err), &err, "Not a directory");
    assert_fails(erg_dir_make(in_folder("plain"), &err), &err, "Not a directory");
    assert_fails(erg_file_write("/dev/full", "x", 1, &err), &err, "No space left");
}

static void full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    struct erg_error err;
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("kept"));
    assert_ok(erg_file_write(path, "old", 3, &err), &err);
    int before = entries(folder);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1000; /* stands in for a full disk */
    signal(SIGXFSZ, SIG_IGN);
    char *big = calloc(1, 5000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int result = erg_file_write(path, big, 5000, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    free(big);
    assert_int_equal(result, -1);
    assert_non_null(strstr(err.message, "kept' (5000 bytes): File too large"));
    assert_int_equal(entries(folder), before);
    char *text;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    assert_string_equal(text, "old");
    free(text);
}

static void read_only_folder_is_refused(void **state)
{
    (void)state;
    if (geteuid() == 0) {
        print_message("[  NOTE  ] skipped: root may write everywhere\n");
        skip();
    }
    struct erg_error err;
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder("locked"));
    assert_ok(erg_dir_make(path, &err), &err);
    assert_int_equal(chmod(path, 0555), 0);
    assert_fails(erg_file_write(in_folder("locked/x"), "x", 1, &err), &err, "Permission denied");
    assert_fails(erg_dir_make(in_folder("locked/x/y"), &err), &err, "Permission denied");
}

static void data_is_found_by_name_in_any_case(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_arena arena = {0};
    assert_ok(erg_dir_make(in_folder("data/things/Folder"), &err), &err);
    assert_ok(erg_file_write(in_folder("data/things/B-2.yaml"), "", 0, &err), &err);
    assert_ok(erg_file_write(in_folder("data/things/a.json"), "", 0, &err), &err);
    assert_int_equal(setenv("ERGON_DATA", in_folder("data"), 1), 0);
    char *path = erg_data_find("things", "b-2");
    assert_string_equal(path, in_folder("data/things/B-2.yaml"));
    free(path);
    path = erg_data_find("things", "FOLDER");
    assert_string_equal(path, in_folder("data/things/Folder"));
    free(path);
    path = erg_data_find("things", "A.json");
    assert_string_equal(path, in_folder("data/things/a.json"));
    free(path);
    assert_null(erg_data_find("things", "B"));
    assert_null(erg_data_find("nothing", "B"));
    const char *const *names = erg_data_names("things", &arena);
    assert_string_equal(names[0], "a");
    assert_string_equal(names[1], "B-2");
    assert_string_equal(names[2], "Folder");
    assert_null(names[3]);
    assert_null(erg_data_names("nothing", &arena)[0]);
    erg_arena_release(&arena);
    unsetenv("ERGON_DATA");
}

static struct erg_csv *parse(const char *text)
{
    struct erg_error err;
    struct erg_csv *csv;
    assert_ok(erg_csv_parse(&csv, "t.csv", text, strlen(text), &err), &err);
    return csv;
}

/* What follows a broken row is read, and each is counted once. */
static void csv_leaves_broken_rows_out(void **state)
{
    (void)state;
    static const char text[] = "a,b\n1,2\n3\n4,\"5\"x,6\n7,\"8\n9\"\n10,\"11\n12,13\n";
    struct erg_csv_broken broken;
    struct erg_csv *csv;
    struct erg_error err;
    assert_ok(erg_csv_parse_sound(&csv, &broken, "t.csv", text, strlen(text), &err), &err);
    assert_int_equal(erg_csv_rows(csv), 3);
    assert_string_equal(erg_csv_text(csv, 1, 1), "8\n9");
    assert_int_equal(erg_csv_line(csv, 2), 8);
    assert_string_equal(erg_csv_text(csv, 2, 0), "12");
    assert_int_equal(broken.rows, 3);
    assert_non_null(strstr(broken.first.message, "t.csv:3: this row has 1 fields"));
    erg_csv_free(csv);
    assert_fails(erg_csv_parse_sound(&csv, &broken, "t.csv", "a,\"b\n", 5, &err), &err, "t.csv:1:");
}

static void csv_reads_quotes_crlf_and_bom(void **state)
{
    (void)state;
    struct erg_csv *csv = parse("\xef\xbb\xbf"
                                "stage, time ,note\r\n"
                                "\r\n"
                                "0,1.5e-3,\"a \"\"b\"\",\nc\"\r\n"
                                "1, 2 ,\n"
                                "2,,\"\"");
    struct erg_error err;
    size_t time;
    assert_int_equal(erg_csv_rows(csv), 3);
    assert_string_equal(erg_csv_header(csv, 2), "note");
    assert_null(erg_csv_header(csv, 3));
    assert_ok(erg_csv_require(csv, "time", &time, &err), &err);
    assert_int_equal(time, 1);
    double value;
    long whole;
    assert_ok(erg_csv_double(csv, 0, time, &value, &err), &err);
    assert_near(value, 0.0015, 0);
    assert_string_equal(erg_csv_text(csv, 0, 2), "a \"b\",\nc");
    assert_ok(erg_csv_long(csv, 1, time, &whole, &err), &err);
    assert_int_equal(whole, 2);
    assert_int_equal(erg_csv_line(csv, 0), 3);
    assert_int_equal(erg_csv_line(csv, 1), 5);
    assert_fails(erg_csv_double(csv, 2, time, &value, &err), &err,
                 "t.csv:6: column 'time': expected a number, got ''");
    assert_fails(erg_csv_long(csv, 0, time, &whole, &err), &err,
                 "t.csv:3: column 'time': expected a whole number, got '1.5e-3'");
    assert_fails(erg_csv_require(csv, "energy", &time, &err), &err,
                 "t.csv:1: the column 'energy' is missing; the header has: stage, time, note");
    assert_int_equal(erg_csv_find(csv, "energy"), -1);
    assert_fails(erg_csv_fail(csv, 1, &err, "stage %d is odd", 1), &err, "t.csv:5: stage 1 is odd");
    erg_csv_free(csv);
}

static void csv_reads_whole_numbers_of_other_programs(void **state)
{
    (void)state;
    const struct {
        const char *text;
        long value; /* -1: refused */
    } cases[] = {{"1410", 1410}, {"1410.0", 1410}, {"1.41e3", 1410}, {"0", 0}, {"1410.5", -1},
                 {"1e300", -1},  {"nan", -1},      {"", -1},         {"x", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        struct erg_error err;
        long value = 0;
        erg_text_printf(&text, "frequency,note\n%s,\n", cases[i].text);
        struct erg_csv *csv = parse(text.data);
        if (cases[i].value < 0) {
            assert_fails(erg_csv_long(csv, 0, 0, &value, &err), &err, "expected a whole number");
        } else {
            assert_ok(erg_csv_long(csv, 0, 0, &value, &err), &err);
            assert_int_equal(value, cases[i].value);
        }
        erg_csv_free(csv);
        erg_text_release(&text);
    }
}

static void csv_refuses_broken_tables(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t length;
        const char *message;
    } cases[] = {
        {"", 0, "t.csv: the table is empty, expected a header row"},
        {"\n \n", 3, "t.csv: the table is empty"},
        {"a,b\n1,2\n3\n", 10, "t.csv:3: this row has 1 fields, expected 2"},
        {"a,b\n1,2,3\n", 10, "t.csv:2: this row has 3 fields, expected 2"},
        {"a,a\n1,2\n", 8, "t.csv:1: the header names the column 'a' twice"},
        {"a\n\"1\n2\n", 7, "t.csv:2: the quoted field that starts here never ends"},
        {"a\n\"1\"2\n", 7, "t.csv:2: found '2' after a quoted field"},
        {"a\n1\0002\n", 6, "t.csv:2: found a zero byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        struct erg_csv *csv;
        assert_fails(erg_csv_parse(&csv, "t.csv", cases[i].text, cases[i].length, &err), &err,
                     cases[i].message);
    }
}

static void csv_written_reads_back(void **state)
{
    (void)state;
    const char *texts[] = {"plain", "", "a,b", "say \"x\"", " padded ", "two\nlines"};
    const double numbers[] = {0.1, 1.0 / 3, 1410, 1e-300, -0.0, 12345678901234568};
    struct erg_text out = {0};
    erg_csv_add(&out, "text");
    erg_csv_add(&out, "number");
    erg_csv_add(&out, "whole");
    erg_csv_end_row(&out);
    for (size_t i = 0; i < 6; i++) {
        erg_csv_add(&out, texts[i]);
        erg_csv_add_double(&out, numbers[i]);
        erg_csv_add_long(&out, (long)i - 3);
        erg_csv_end_row(&out);
    }
    assert_non_null(strstr(out.data, "plain,0.1,-3\n"));
    struct erg_csv *csv = parse(out.data);
    for (size_t i = 0; i < 6; i++) {
        struct erg_error err;
        double number;
        long whole;
        assert_string_equal(erg_csv_text(csv, i, 0), texts[i]);
        assert_ok(erg_csv_double(csv, i, 1, &number, &err), &err);
        assert_true(number == numbers[i]);
        assert_ok(erg_csv_long(csv, i, 2, &whole, &err), &err);
        assert_int_equal(whole, (long)i - 3);
    }
    erg_csv_free(csv);
    erg_text_release(&out);
}

static const char document[] = "{\"heads\": -3, \"eps\": 1e-5, \"size\": 4096.0, \"half\": 0.5,\n"
                               " \"tie\": true, \"name\": \"x\", \"none\": null,\n"
                               " \"rope\": {\"factor\": 0}, \"list\": [{\"a\": 1}, 2]}";

static void json_getters_name_the_key(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_json_place place, inner;
    json_t *root;
    long whole;
    double number;
    bool flag;
    const char *text;
    assert_ok(erg_json_parse(&root, "model config.json", document, strlen(document), &err), &err);
    assert_ok(erg_json_root(&place, root, "model config.json", &err), &err);
    assert_fails(erg_json_long(&place, "heads", 1, LONG_MAX, &whole, &err), &err,
                 "model config.json: key 'heads': expected a positive integer, got -3");
    assert_fails(erg_json_long(&place, "layers", 1, 10, &whole, &err), &err,
                 "key 'layers': the key is missing, expected a positive integer of at most 10");
    assert_fails(erg_json_long(&place, "half", 0, 9, &whole, &err), &err,
                 "expected an integer from 0 to 9, got 0.5");
    assert_fails(erg_json_long(&place, "name", 0, 9, &whole, &err), &err, "got \"x\"");
    assert_ok(erg_json_long(&place, "size", 1, LONG_MAX, &whole, &err), &err);
    assert_int_equal(whole, 4096);
    assert_ok(erg_json_double(&place, "eps", 0, 1, &number, &err), &err);
    assert_near(number, 1e-5, 0);
    assert_ok(erg_json_bool(&place, "tie", &flag, &err), &err);
    assert_true(flag);
    assert_fails(erg_json_bool(&place, "eps", &flag, &err), &err, "expected true or false");
    assert_ok(erg_json_string(&place, "name", &text, &err), &err);
    assert_string_equal(text, "x");
    assert_true(erg_json_has(&place, "eps"));
    assert_false(erg_json_has(&place, "none"));
    assert_false(erg_json_has(&place, "absent"));
    assert_ok(erg_json_enter(&inner, &place, "rope", &err), &err);
    assert_fails(erg_json_double(&inner, "factor", 1, INFINITY, &number, &err), &err,
                 "model config.json: key 'rope.factor': expected a number of at least 1, got 0");
    assert_fails(erg_json_enter(&inner, &place, "list", &err), &err,
                 "key 'list': expected an object {…}, got a list");
    assert_ok(erg_json_enter_item(&inner, &place, "list", 0, &err), &err);
    assert_fails(erg_json_long(&inner, "b", 0, 1, &whole, &err), &err, "key 'list[0].b'");
    assert_fails(erg_json_enter_item(&inner, &place, "list", 1, &err), &err,
                 "key 'list[1]': expected an object {…}, got 2");
    json_decref(root);
}

static void json_messages_say_the_line(void **state)
{
    (void)state;
    static const char lines[] = "{\n"
                                " \"decoy\": \"{ \\\" \\\\\",\n"
                                " \"a\": {\"b\": [1,\n"
                                "   [2, {\"c\": [],\n"
                                "        \"d.e\": 5}]]},\n"
                                " \"f\":\n"
                                "   -7}\n";
    const struct {
        const char *path;
        long line;
    } cases[] = {{"", 1},          {"decoy", 2},         {"a", 3},
                 {"a.b", 3},       {"a.b[0]", 3},        {"a.b[1]", 4},
                 {"a.b[1][1]", 4}, {"a.b[1][1].c", 4},   {"a.b[1][1].d.e", 5},
                 {"f", 6},         {"a.b[1][1].x", 4},   {"a.b[2]", 3},
                 {"missing", 1},   {"a.missing.more", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(erg_json_line(lines, strlen(lines), cases[i].path), cases[i].line);
    static const char *const broken[] = {"", "{", "{\"", "{\"a", "{\"a\"", "[}", "[1", "{\"b\":]"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        assert_int_equal(erg_json_line(broken[i], strlen(broken[i]), "a"), 1);
        assert_int_equal(erg_json_line(broken[i], strlen(broken[i]), "[1]"), 1);
    }

    struct erg_error err;
    struct erg_json_place place, inner;
    json_t *root;
    long whole;
    assert_ok(erg_json_open(&place, &root, "c.json", lines, strlen(lines), &err), &err);
    assert_fails(erg_json_long(&place, "f", 0, 9, &whole, &err), &err,
                 "c.json:6: key 'f': expected an integer from 0 to 9, got -7");
    assert_ok(erg_json_enter(&inner, &place, "a", &err), &err);
    assert_fails(erg_json_long(&inner, "z", 0, 9, &whole, &err), &err,
                 "c.json:3: key 'a.z': the key is missing");
    assert_fails(erg_json_enter_item(&inner, &inner, "b", 1, &err), &err,
                 "c.json:4: key 'a.b[1]': expected an object");
    json_decref(root);
    assert_fails(erg_json_open(&place, &root, "c.json", "\n[1]", 4, &err), &err,
                 "c.json:1: expected an object {…} at the top, got a list");
}

static void json_refuses_broken_documents(void **state)
{
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"a\": 1,\n \"b\" 2}", "t.json:2:"}, {"{\"a\": 1,\n \"a\": 2}", "duplicate object key"},
        {"{\"a\": 1} x", "t.json:1:"},          {"", "this is not valid JSON"},
        {"{\"a\": NaN}", "t.json:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_error err;
        json_t *root;
        assert_fails(erg_json_parse(&root, "t.json", cases[i].text, strlen(cases[i].text), &err),
                     &err, cases[i].message);
    }
    struct erg_error err;
    struct erg_json_place place;
    json_t *root;
    assert_ok(erg_json_parse(&root, "t.json", "[1]", 3, &err), &err);
    assert_fails(erg_json_root(&place, root, "t.json", &err), &err,
                 "t.json: expected an object {…} at the top, got a list");
    json_decref(root);
}

static void json_written_loses_no_digit(void **state)
{
    (void)state;
    struct erg_error err;
    const double value = 0.1 + 0.2;
    json_t *root = json_pack("{s:o, s:i, s:o}", "z", erg_json_number(value), "a", 7, "nan",
                             erg_json_number(NAN)),
           *back;
    const char *path = in_folder("x.json");
    assert_ok(erg_json_write(path, root, &err), &err);
    assert_ok(load_json(&back, path, &err), &err);
    assert_true(json_real_value(json_object_get(back, "z")) == value);
    assert_true(json_equal(root, back));
    assert_true(json_is_null(json_object_get(back, "nan")));
    json_decref(root);
    json_decref(back);
}

/* No input makes a key vanish: text of another encoding, NaN, nothing at all. */
static void json_values_take_any_input(void **state)
{
    (void)state;
    json_t *root = erg_json_pack("{s:s, s:s?, s:[s, f, i], s:{s:I, s:b, s:n}, s:f, s:o, s:O}",
                                 "name", "caf\xe9", "none", NULL, "list", "\xff", NAN, 3, "inner",
                                 "whole", (json_int_t)1 << 40, "true", 1, "null", "real", 0.1,
                                 "taken", json_null(), "missing", NULL);
    char *text = json_dumps(root, JSON_COMPACT);
    assert_string_equal(text, "{\"name\":\"caf\xEF\xBF\xBD\",\"none\":null,"
                              "\"list\":[\"\xEF\xBF\xBD\",null,3],"
                              "\"inner\":{\"whole\":1099511627776,\"true\":true,\"null\":null},"
                              "\"real\":0.10000000000000001,\"taken\":null,\"missing\":null}");
    free(text);
    json_decref(root);
    struct erg_text line = {0};
    erg_json_add_string(&line, "a\"b\\c\n\x1b[0m caf\xe9 \xc3\xbc");
    assert_string_equal(line.data, "\"a\\\"b\\\\c\\u000a\\u001b[0m caf\xEF\xBF\xBD \xc3\xbc\"");
    json_t *back = json_loads(line.data, JSON_DECODE_ANY, NULL);
    assert_string_equal(json_string_value(back), "a\"b\\c\n\x1b[0m caf\xEF\xBF\xBD \xc3\xbc");
    json_decref(back);
    erg_text_release(&line);
    /* Controls that jansson would leave as they are, for a terminal to obey. */
    root = erg_json_pack("{s:s}", "name", "del\x7f csi\xc2\x9b nel\xc2\x85 \xc2\xa0\t\x1b");
    text = erg_json_text(root);
    assert_string_equal(
        text, "{\n  \"name\": \"del\\u007f csi\\u009b nel\\u0085 \xc2\xa0\\t\\u001B\"\n}");
    back = json_loads(text, 0, NULL);
    assert_true(json_equal(back, root));
    json_decref(back);
    json_decref(root);
    free(text);
    erg_json_add_string(&line, "\x7f\xc2\x9b");
    assert_string_equal(line.data, "\"\\u007f\\u009b\"");
    erg_text_release(&line);
    struct erg_error err = {0};
    static const char model[] = "{\"_name_or_path\": \"caf\xe9\"}";
    assert_ok(erg_json_parse(&back, "config.json", model, sizeof model - 1, &err), &err);
    assert_string_equal(json_string_value(json_object_get(back, "_name_or_path")),
                        "caf\xEF\xBF\xBD");
    json_decref(back);
}

static void csv_becomes_utf8(void **state)
{
    (void)state;
    struct erg_error err = {0};
    struct erg_csv *csv;
    struct erg_text out = {0};
    static const char table[] = "id,n\ncaf\xe9,1\n\"a,\xff\",2\n";
    assert_ok(erg_csv_parse(&csv, "t.csv", table, sizeof table - 1, &err), &err);
    assert_string_equal(erg_csv_text(csv, 0, 0), "caf\xEF\xBF\xBD");
    assert_string_equal(erg_csv_text(csv, 1, 0), "a,\xEF\xBF\xBD");
    assert_int_equal(erg_csv_line(csv, 1), 3);
    erg_csv_free(csv);
    erg_csv_add(&out, "caf\xe9");
    erg_csv_add(&out, "\"\xff\",");
    assert_string_equal(out.data, "caf\xEF\xBF\xBD,\"\"\"\xEF\xBF\xBD\"\",\"");
    erg_text_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_reads_back),
        cmocka_unit_test(pipes_are_read_to_their_end),
        cmocka_unit_test(a_named_pipe_is_refused),
        cmocka_unit_test(leftovers_of_killed_runs_are_removed),
        cmocka_unit_test(link_keeps_its_target),
        cmocka_unit_test(failures_are_sentences),
        cmocka_unit_test(full_disk_leaves_the_old_file),
        cmocka_unit_test(read_only_folder_is_refused),
        cmocka_unit_test(data_is_found_by_name_in_any_case),
        cmocka_unit_test(csv_leaves_broken_rows_out),
        cmocka_unit_test(csv_reads_quotes_crlf_and_bom),
        cmocka_unit_test(csv_reads_whole_numbers_of_other_programs),
        cmocka_unit_test(csv_refuses_broken_tables),
        cmocka_unit_test(csv_written_reads_back),
        cmocka_unit_test(csv_becomes_utf8),
        cmocka_unit_test(json_values_take_any_input),
        cmocka_unit_test(json_getters_name_the_key),
        cmocka_unit_test(json_messages_say_the_line),
        cmocka_unit_test(json_refuses_broken_documents),
        cmocka_unit_test(json_written_loses_no_digit),
    };
    return cmocka_run_group_tests(tests, make_folder, tear_down);
}
