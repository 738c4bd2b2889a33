/*
 * What tests of the plan server share: a plan of two stages, the requests that Zeus' own client
 * sent (tests/data/perseus), and what `ergon show` lists.
 */
#ifndef ERGON_TESTS_PERSEUS_H
#define ERGON_TESTS_PERSEUS_H

#include "commands.h"

/* The name of the job in the recorded requests. */
#define RECORDED_JOB "2026-01-01-00-00-00+dp2+pp2+tp1+PointSolution+meta"

static inline void write_profile(const char *name, int stages)
{
    struct erg_text text = {0};
    erg_text_add(&text, "stage,instruction,frequency,time,energy\n");
    for (int s = 0; s < stages; s++)
        erg_text_printf(&text,
                        "%d,forward,1410,0.01%d,4\n%d,forward,1200,0.01%d,3\n"
                        "%d,backward,1410,0.02%d,8\n%d,backward,1200,0.02%d,6\n",
                        s, s, s, s + 2, s, s, s, s + 4);
    write_text(name, text.data);
    erg_text_release(&text);
}

/* FOLDER/name: a plan whose selected point is the fastest, or what `pick` says. */
static inline void make_plan(const char *name, int stages, const char *pick)
{
    struct erg_text line = {0};
    write_profile("profile.csv", stages);
    erg_text_printf(&line, "frontier '%s' -m 4 -p 80 -n 12 %s --plan '%s' -q 2>&1",
                    in_folder("profile.csv"), pick, in_folder(name));
    check_program(line.data, 0, "");
    erg_text_release(&line);
}

/* {"rank":R,"frequencies":[…]} as `ergon show` lists the stage, each planned clock or the next
 * higher one of `clocks`, which rise and end with 0; NULL: as planned. */
static inline struct erg_text shown_schedule(const char *plan, int rank, int stage,
                                             const int *clocks)
{
    struct erg_text line = {0}, out = {0};
    char path[64];
    erg_text_printf(&line, "show '%s' --method sequential+clocks --json", plan);
    json_t *root = run_json(line.data, 0), *item;
    size_t i;
    snprintf(path, sizeof path, "chosen.stages.%d.instructions", stage);
    erg_text_printf(&out, "{\"rank\":%d,\"frequencies\":[", rank);
    json_array_foreach(json_at(root, path), i, item)
    {
        const int planned_mhz = (int)number(item, "clock_mhz");
        const int *clock = clocks;
        while (clock && *clock < planned_mhz)
            clock++;
        erg_text_printf(&out, "%s[\"%s\",%d]", i ? "," : "", text_at(item, "type"),
                        clock ? *clock : planned_mhz);
    }
    assert_true(i > 0);
    erg_text_add(&out, "]}");
    json_decref(root);
    erg_text_release(&line);
    return out;
}

/* A recorded request with the job's name in place of the recorded one; NULL: as it is. */
static inline struct erg_text recorded(const char *name, const char *job)
{
    struct erg_error err;
    struct erg_text path = {0}, out = {0};
    char *text;
    erg_text_printf(&path, ERGON_TEST_SOURCE_DIR "/tests/data/perseus/%s.http", name);
    assert_ok(erg_file_read(path.data, 0, &text, NULL, &err), &err);
    const char *at = job ? strstr(text, RECORDED_JOB) : NULL;
    erg_text_add_bytes(&out, text, at ? (size_t)(at - text) : strlen(text));
    if (at) {
        erg_text_add(&out, job);
        erg_text_add(&out, at + strlen(RECORDED_JOB));
    }
    free(text);
    erg_text_release(&path);
    return out;
}

#endif
