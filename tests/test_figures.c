/* Figures of a study: all that is to be there, well-formed and of nothing outside; findings. */
#include "report/figures/figures.h"
#include "study_world.h"

#include "io/csv.h"

#include <ctype.h>

/* The same, but deep pipelines are out of memory. */
static int make_up_memory(void *context, const struct erg_study_point *point,
                          struct erg_study_result *result, struct erg_arena *arena,
                          struct erg_error *err)
{
    if (point->layout.pipeline < 16)
        return make_up(context, point, result, arena, err);
    result->status = ERG_RESULT_MEMORY;
    result->message = "stage 0 needs 9.9 GiB more than there are";
    return 0;
}

/* Two models, four layouts, one of which is out of memory and one impossible; an equal pair. */
#define STUDY                                                                                      \
    STUDY_HEAD "optimisations: [base, act]\nmicrobatch: [1, 4]\npoints:\n"                         \
               "  - {model: gpt3-175b, layouts: [\"t=2,p=16\", \"t=8,p=4\", \"t=8,fsdp=4\"]}\n"    \
               "  - {model: llama-3.3-70b, layouts: [\"t=8,p=2\", \"t=3\"]}\n"
enum { MARKS = 20, GPUS = 32 };

static struct erg_collection *collection;
static struct erg_findings findings;

static struct erg_collection *run_and_collect(const char *text, const char *name)
{
    struct erg_study *study = load_study(text);
    struct erg_study_tally tally;
    struct erg_collection *all;
    struct erg_error err;
    run_study_by(study, name, make_up_memory, &tally);
    erg_study_free(study);
    assert_ok(erg_collection_load(&all, in_folder(name), &err), &err);
    return all;
}

static int begin(void **state)
{
    struct erg_error err;
    make_folder(state);
    collection = run_and_collect(STUDY, "study");
    const struct erg_collection *const all[] = {collection};
    erg_findings_check(&findings, all, 1);
    const struct erg_figures_input input = {.findings = &findings};
    assert_ok(erg_figures_write(in_folder("study"), collection, &input, &err), &err);
    return 0;
}

static int end(void **state)
{
    erg_findings_release(&findings);
    erg_collection_free(collection);
    return remove_folder(state);
}

static char *read_file(const char *name)
{
    struct erg_error err;
    char *text;
    assert_ok(erg_file_read(in_folder(name), 0, &text, NULL, &err), &err);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

/* Elements that end in the order in which they began, quoted attributes, known entities. */
static void check_elements(const char *name, const char *text, bool html)
{
    static const char *const empty[] = {"meta", "link", NULL};
    char open[64][32];
    int depth = 0;
    for (const char *at = strchr(text, '<'); at; at = strchr(at, '<')) {
        if (at[1] == '!') {
            at++;
            continue;
        }
        const bool ends = at[1] == '/';
        const char *tag = at + 1 + ends, *rest = tag;
        size_t length = 0;
        while (isalnum((unsigned char)tag[length]))
            length++;
        assert_true(length > 0 && length < sizeof open[0]);
        for (; *rest && *rest != '>'; rest++)
            if (*rest == '"')
                rest = strchr(rest + 1, '"');
        assert_true(*rest == '>');
        if (ends) {
            if (depth == 0 || strlen(open[depth - 1]) != length ||
                strncmp(open[depth - 1], tag, length) != 0)
                fail_msg("%s: </%.*s> ends no element", name, (int)length, tag);
            depth--;
        } else if (rest[-1] != '/') {
            bool is_empty = false;
            for (size_t i = 0; html && empty[i]; i++)
                is_empty |= strlen(empty[i]) == length && !strncmp(empty[i], tag, length);
            if (!is_empty) {
                assert_true(depth < 64);
                snprintf(open[depth++], sizeof open[0], "%.*s", (int)length, tag);
            }
        }
        at = rest;
    }
    assert_int_equal(depth, 0);
    for (const char *at = strchr(text, '&'); at; at = strchr(at + 1, '&'))
        assert_true(!strncmp(at, "&lt;", 4) || !strncmp(at, "&gt;", 4) ||
                    !strncmp(at, "&amp;", 5) || !strncmp(at, "&quot;", 6));
}

static void check_alone(const char *name, const char *text)
{
    static const char *const refused[] = {"<script", "javascript:", "url(h",  "@import",
                                          "<image",  "<use",        "onload", "src="};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strstr(text, refused[i]))
            fail_msg("%s has %s", name, refused[i]);
    for (const char *at = text; (at = strstr(at, "http")) != NULL; at++)
        assert_int_equal(strncmp(at, "http://www.w3.org/2000/svg", 26), 0);
}

static char *read_figure(int number)
{
    char name[64];
    snprintf(name, sizeof name, "study/figures/fig%02d.svg", number);
    char *text = read_file(name);
    check_elements(name, text, false);
    check_alone(name, text);
    return text;
}

static size_t csv_rows(int number, struct erg_csv **csv)
{
    char name[64];
    struct erg_error err;
    snprintf(name, sizeof name, "study/figures/fig%02d.csv", number);
    assert_ok(erg_csv_load(csv, in_folder(name), &err), &err);
    return erg_csv_rows(*csv);
}

/* How many marks of one optimisation, of the microbatch, are there by status. */
static size_t marks_that(enum erg_result_status status, const char *optimisation, long microbatch)
{
    size_t count = 0;
    for (size_t i = 0; i < collection->count; i++) {
        const struct erg_collected *mark = &collection->marks[i];
        count += mark->result->status == status &&
                 (!optimisation || !strcmp(mark->optimisation, optimisation)) &&
                 (!microbatch || mark->microbatch == microbatch);
    }
    return count;
}

static void test_collection(void **state)
{
    (void)state;
    assert_int_equal(collection->count, MARKS);
    assert_int_equal(marks_that(ERG_RESULT_OK, NULL, 0), 12);
    assert_int_equal(marks_that(ERG_RESULT_MEMORY, NULL, 0), 4);
    assert_int_equal(marks_that(ERG_RESULT_IMPOSSIBLE, NULL, 0), 4);
}

/* A mean, a peak where there is one and an efficiency of every mark that has a result, in each of
 * three panels; a band where it has none. */
static void check_panels(int number, const char *optimisation, long microbatch)
{
    char *svg = read_figure(number);
    struct erg_csv *csv;
    const size_t ok = marks_that(ERG_RESULT_OK, optimisation, microbatch);
    const size_t memory = marks_that(ERG_RESULT_MEMORY, optimisation, microbatch);
    const size_t impossible = marks_that(ERG_RESULT_IMPOSSIBLE, optimisation, microbatch);
    assert_int_equal(count_of(svg, "class=\"mean\">"), 3 * ok);
    assert_int_equal(count_of(svg, "class=\"peak\">"), 2 * ok);
    assert_int_equal(count_of(svg, "class=\"efficiency\">"), 3 * ok);
    assert_int_equal(count_of(svg, "class=\"band\">"), 3 * (memory + impossible));
    assert_int_equal(count_of(svg, ">OOM<"), 3 * memory);
    assert_int_equal(count_of(svg, ">n/a<"), 3 * impossible);
    assert_int_equal(csv_rows(number, &csv), ok + memory + impossible);
    erg_csv_free(csv);
    free(svg);
}

static void test_panels(void **state)
{
    (void)state;
    check_panels(4, "act", 1);
    check_panels(8, NULL, 1);
    check_panels(13, "act", 0);
}

/* A cell of every GPU of every layout with a result, and of their average; a band for others. */
static void check_maps(int number, size_t quantities)
{
    char *svg = read_figure(number);
    struct erg_csv *csv;
    const size_t ok = marks_that(ERG_RESULT_OK, "base", 1);
    assert_int_equal(count_of(svg, "class=\"cell\""), quantities * GPUS * (ok + 1));
    assert_int_equal(count_of(svg, "class=\"band\">"), quantities * 2);
    assert_int_equal(csv_rows(number, &csv), ok * GPUS);
    erg_csv_free(csv);
    free(svg);
}

static void test_maps(void **state)
{
    (void)state;
    check_maps(5, 2);
    check_maps(17, 5);
    char *svg = read_figure(17);
    assert_int_equal(count_of(svg, "class=\"slot front\">"), 5 * GPUS / 2);
    free(svg);
}

/* Three categories in every bar, and the part of one that waits. */
static void test_bars(void **state)
{
    (void)state;
    struct erg_csv *csv;
    char *svg = read_figure(10);
    const size_t ok = marks_that(ERG_RESULT_OK, NULL, 1);
    assert_int_equal(count_of(svg, "class=\"bar c0\">"), ok);
    assert_int_equal(count_of(svg, "class=\"bar c1\">"), ok);
    assert_int_equal(count_of(svg, "class=\"wait\">"), ok);
    assert_int_equal(count_of(svg, "class=\"band\">"), 4);
    assert_int_equal(csv_rows(10, &csv), 3 * ok + 4);
    erg_csv_free(csv);
    free(svg);
    /* Of the first model: stages of t=8,p=4 and the one of t=8,fsdp=4 with microbatches of 1 and 4;
     * the other layout has no result. */
    svg = read_figure(15);
    assert_int_equal(count_of(svg, "class=\"bar c0\">"), 2 * (4 + 1));
    assert_int_equal(count_of(svg, "class=\"band\">"), 2);
    free(svg);
}

/* In the order of the study's models, fully sharded first, then by depth. */
static void test_order(void **state)
{
    (void)state;
    struct erg_csv *csv;
    static const char *const names[] = {"gpt3-175b/t=8,fsdp=4/b=1/act", "gpt3-175b/t=8,p=4/b=1/act",
                                        "gpt3-175b/t=2,p=16/b=1/act", "llama-3.3-70b/t=3/b=1/act",
                                        "llama-3.3-70b/t=8,p=2/b=1/act"};
    assert_int_equal(csv_rows(4, &csv), 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(erg_csv_text(csv, i, 0), names[i]);
    erg_csv_free(csv);
}

static void test_described(void **state)
{
    (void)state;
    static const int numbers[] = {4, 5, 8, 10, 13, 15, 17};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *svg = read_figure(numbers[i]);
        char *desc = strstr(svg, "<desc>");
        assert_non_null(desc);
        *strstr(desc, "</desc>") = '\0';
        for (size_t m = 0; m < collection->count; m++) {
            const struct erg_collected *mark = &collection->marks[m];
            if (numbers[i] == 4 && mark->microbatch == 1 && !strcmp(mark->optimisation, "act"))
                assert_int_equal(count_of(desc, mark->id), 1);
        }
        assert_true(count_of(desc, " ") > 1);
        free(svg);
    }
    char *svg = read_figure(8);
    static const char *const labels[] = {">FSDP4<", ">PP16<", ">PP2<", ">cc+act<", ">base<"};
    assert_int_equal(count_of(svg, labels[0]), 1);
    assert_int_equal(count_of(svg, labels[1]), 1);
    assert_int_equal(count_of(svg, labels[2]), 1);
    assert_int_equal(count_of(svg, labels[3]), 0);
    assert_int_equal(count_of(svg, labels[4]), 5);
    free(svg);
}

static void test_page(void **state)
{
    (void)state;
    char *page = read_file("study/report.html");
    check_elements("report.html", page, true);
    check_alone("report.html", page);
    for (size_t i = 0; i < collection->count; i++)
        assert_non_null(strstr(page, collection->marks[i].id));
    assert_int_equal(count_of(page, "<section id=\"fig"), 7);
    assert_non_null(strstr(page, "<section id=\"findings\">"));
    free(page);
}

/* No heading above the bars is wider than its part: a letter of 10 px takes 5.2 of them. */
static void test_headings_fit(void **state)
{
    (void)state;
    char *page = read_file("study/report.html");
    size_t seen = 0;
    for (const char *at = page; (at = strstr(at, "y=\"25.0\" class=\"group\">")) != NULL; at++) {
        const char *text = strchr(at, '>') + 1, *view = at;
        while (view > page && strncmp(view, "viewBox=\"0 0 ", 13) != 0)
            view--;
        assert_true(42 + 5.2 * (double)strcspn(text, "<") <= strtod(view + 13, NULL));
        seen++;
    }
    assert_true(seen > 3);
    free(page);
}

static void test_redrawn(void **state)
{
    (void)state;
    struct erg_error err;
    const struct erg_figures_input input = {.findings = &findings};
    shell("cp -r @/study @/again");
    assert_ok(erg_figures_write(in_folder("again"), collection, &input, &err), &err);
    shell("diff -r @/study @/again");
    /* Another right axis is another picture. */
    const struct erg_figures_input other = {.right = ERG_RIGHT_J_PER_TOKEN, .findings = &findings};
    assert_ok(erg_figures_write(in_folder("again"), collection, &other, &err), &err);
    char *svg = read_file("again/figures/fig04.svg");
    assert_non_null(strstr(svg, ">J / token<"));
    free(svg);
}

/* ---- findings ---- */

static const struct erg_study_finding *finding_of(const struct erg_findings *of, const char *id)
{
    for (size_t i = 0; i < of->count; i++)
        if (!strcmp(of->items[i].id, id))
            return &of->items[i];
    fail_msg("there is no finding %s", id);
    return NULL;
}

static void test_findings(void **state)
{
    (void)state;
    /* Made up: front 60 to 61 °C, rear 75 to 76 °C. */
    assert_int_equal(finding_of(&findings, "1")->verdict, ERG_VERDICT_HOLDS);
    assert_int_equal(finding_of(&findings, "2")->verdict, ERG_VERDICT_HOLDS);
    assert_int_equal(finding_of(&findings, "3")->verdict, ERG_VERDICT_NO_POINTS);
    assert_int_equal(finding_of(&findings, "5")->verdict, ERG_VERDICT_HOLDS);
    assert_int_equal(finding_of(&findings, "7")->verdict, ERG_VERDICT_OUT);
    assert_int_equal(finding_of(&findings, "9")->verdict, ERG_VERDICT_NO_POINTS);
    /* Times are made up between 20 and 30 s: no ratio is 3.2. */
    assert_int_equal(finding_of(&findings, "8")->verdict, ERG_VERDICT_FAILS);
    assert_true(erg_findings_failed(&findings) >= 1);
}

static int fault_of(void *context, const struct erg_study_point *point,
                    struct erg_study_result *result, struct erg_arena *arena, struct erg_error *err)
{
    make_up(context, point, result, arena, err);
    result->metrics.time_s = 10 / point->fault_clock_share;
    result->metrics.tokens_per_j = point->lora_rank ? 3 : 2;
    return 0;
}

static void test_pairs(void **state)
{
    (void)state;
    struct erg_study *study = load_study(
        STUDY_HEAD "faults: [{node: 0, clock_share: 1}, {node: 0, clock_share: 0.25}]\npoints:\n"
                   "  - {model: gpt3-175b, layouts: [\"t=8,p=4\"]}\n"
                   "  - {model: gpt3-175b, layouts: [\"t=8,p=4\"], lora: {rank: 8}}\n");
    struct erg_study_tally tally;
    struct erg_collection *pairs;
    struct erg_findings own;
    struct erg_error err;
    run_study_by(study, "pairs", fault_of, &tally);
    erg_study_free(study);
    assert_ok(erg_collection_load(&pairs, in_folder("pairs"), &err), &err);
    const struct erg_collection *const all[] = {pairs};
    erg_findings_check(&own, all, 1);
    assert_int_equal(finding_of(&own, "20")->verdict, ERG_VERDICT_HOLDS);
    assert_non_null(strstr(finding_of(&own, "20")->ours, "4.00 times"));
    assert_int_equal(finding_of(&own, "19")->verdict, ERG_VERDICT_HOLDS);
    assert_non_null(strstr(finding_of(&own, "19")->ours, "1.50"));
    erg_findings_release(&own);
    erg_collection_free(pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collection),   cmocka_unit_test(test_panels),
        cmocka_unit_test(test_maps),         cmocka_unit_test(test_bars),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_described),
        cmocka_unit_test(test_page),         cmocka_unit_test(test_redrawn),
        cmocka_unit_test(test_findings),     cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_headings_fit),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
