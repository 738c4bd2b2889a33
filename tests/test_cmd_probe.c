/* ergon probe: its rows, its fits and its refusals. */
#include "probe_world.h"
#include "program.h"

#include "io/file.h"

#define H200 "\"2 x NVIDIA H200, wide\""
#define DATE "2026-11-22T02:32:04Z"

static void write_file(const char *path, const char *text)
{
    struct erg_error err;
    assert_ok(erg_file_write(path, text, strlen(text), &err), &err);
}

static void the_command_probes_and_fits(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "probe -d emulated --base H200-SXM -c '%s/gpu.yaml'", folder);
    check_program(line, 0, "TFLOP/s");
    check_program(line, 0, "80 measurements fitted");
    check_program(line, 0, "clock  power    energy (3)");
    check_program(line, 0, "wide: a layer of hidden size 4096 with an FFN of 14336");
    check_program(line, 0, "wide blocked");
    snprintf(line, sizeof line, "probe -f '%s/gpu.csv' --json -c '%s/again.yaml'", folder, folder);
    check_program(line, 0, "\"comm_sm_rate\"");
    check_program(line, 0, "\"schema_version\": 1,");
    check_program(line, 0, "\"gpu\": \"H200-SXM-measured\",\n  \"base\": \"H200-SXM\",");
    char *first, *second, path[128];
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("gpu.yaml"), 0, &first, NULL, &err), &err);
    snprintf(path, sizeof path, "%s/again.yaml", folder);
    assert_ok(erg_file_read(path, 0, &second, NULL, &err), &err);
    assert_string_equal(first, second);
    free(first);
    free(second);
    snprintf(line, sizeof line, "probe -f '%s/gpu.csv' -n 1 -c '%s/one.yaml' 2>&1", folder, folder);
    check_program(line, 1, "there are 0 measurements on 1 GPU to fit them to");
    check_program(line, 1, "82 of 82 measurements left out: of other GPUs");
    snprintf(line, sizeof line,
             "probe -f '%s/gpu.csv' --json -c '%s/twice.yaml' --base '%s/gpu.yaml'", folder, folder,
             folder);
    check_program(line, 0, "\"gpu\": \"H200-SXM-measured\",\n  \"base\": \"H200-SXM-measured\",");
    snprintf(line, sizeof line, "probe -d emulated -c '%s/ranks.yaml'", folder);
    assert_int_equal(count_of_two_ranks(line, "measurements fitted"), 1);
    snprintf(line, sizeof line, "probe -d emulated --seed 2 -o '%s/gpu.csv' 2>&1", folder);
    check_program(line, 1, "another file");
}

/* Rows of a file: a header, then these. */
static void write_rows(const char *name, const char *rows)
{
    struct erg_text text = {0};
    erg_text_printf(&text,
                    "gpus,shape,item,time_s,energy_j,time_error,energy_error,clock_mhz,"
                    "temperature_c,window_s,reasons,conditions,created_utc\n%s",
                    rows);
    write_file(in_folder(name), text.data);
    erg_text_release(&text);
}

static void wrong_rows_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *said;
    } wrong[] = {
        {"2,wide,rest,0,1,0,0,1980,50,1,0," H200 "," DATE, "bad.csv:2: expected a number of GPUs"},
        {"2,wide,rest,1,80,0,0,0,50,1,0," H200 "," DATE, "bad.csv:2: expected a clock above 0"},
        {"2,wide,rest,1,80,0,-1,1980,50,1,0," H200 "," DATE, "got 1980 MHz, 0 and -1"},
        {"2,wide,rest,1,80,0,0,1980,1e9,1,0," H200 "," DATE,
         "bad.csv:2: expected a temperature of -50 to 150 C"},
        {"2,wide,rest,1,80,0,0,1980,50,0,0," H200 "," DATE, "got 50 C, 0 s and 0"},
        {"2,wide,rest,1,80,0,0,1980,50,1,-4," H200 "," DATE, "got 50 C, 1 s and -4"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 ",yesterday",
         "bad.csv:2: expected created_utc like 2026-11-22T02:32:04Z, got 'yesterday'"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 ",2026-13-22T02:32:04Z", "expected created_utc"},
        {"2,wider than fifteen,rest,1,80,0,0,1980,50,1,0," H200 "," DATE,
         "bad.csv:2: expected a shape of 1 to 15 bytes, got 18"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0,," DATE, "expected a conditions of 1 to 255 bytes"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE
         "\n\n2,wide,rest,1,81,0,0,1980,50,1,0," H200 "," DATE,
         "bad.csv:4: \"rest\" of the shape wide on 2 GPUs is in line 2 already"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE
         "\n2,narrow,layer fwd,1,81,0,0,1980,50,1,0,\"2 x NVIDIA H100 80GB HBM3, narrow\"," DATE,
         "bad.csv:3: it was measured on '2 x NVIDIA H100 80GB HBM3, narrow', but line 2 on '2 x "
         "NVIDIA H200, wide'; expected rows of one device"},
        {"2,wide,rest,1,80,0,0,1980,50,1,0,\"emulated 2 x H200-SXM, seed 1\"," DATE
         "\n2,wide,idle,1,81,0,0,1980,50,1,0,\"emulated 2 x H200-SXM, seed 2\"," DATE,
         "bad.csv:3: it was measured on"},
    };
    struct erg_error err;
    struct erg_probe_rows rows;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        write_rows("bad.csv", wrong[i].rows);
        assert_fails(erg_probe_rows_load(&rows, in_folder("bad.csv"), &err), &err, wrong[i].said);
    }
    write_file(in_folder("bad.csv"), "gpus,shape,item\n2,wide,rest\n");
    assert_fails(erg_probe_rows_load(&rows, in_folder("bad.csv"), &err), &err, "time_s");
    write_rows("good.csv", "2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE
                           "\n4,wide,rest,1,81,0,0,1980,50,1,0,\"4 x NVIDIA H200, wide\"," DATE
                           "\n2,narrow,rest,1,81,0,0,1980,50,1,0,\"2 x NVIDIA H200, n\"," DATE);
    assert_ok(erg_probe_rows_load(&rows, in_folder("good.csv"), &err), &err);
    assert_int_equal(rows.count, 3);
    char gpu[64];
    for (size_t i = 0; i < rows.count; i++) {
        erg_probe_row_gpu(&rows.items[i], gpu, sizeof gpu);
        assert_string_equal(gpu, "NVIDIA H200");
    }
    erg_probe_rows_release(&rows);
}

static void wrong_use_is_explained(void **state)
{
    (void)state;
    char line[512];
    check_program("probe --gpus 2 2>&1", 2, "--gpus is for emulated groups");
    check_program("probe --from a.csv --rows b.csv 2>&1", 2, "one of them");
    check_program("probe --from a.csv --calibrate mine 2>&1", 2, "ends in .yaml, so that a job");
    check_program("probe --from /nowhere/rows.csv 2>&1", 1, "/nowhere/rows.csv");
    check_program("probe -d emulated --base H201-SXM 2>&1", 1, "did you mean 'h200-sxm'");
    check_program("probe -d emulated --gpus 3 2>&1", 1, "3 GPUs");
    write_rows("none.csv", "");
    snprintf(line, sizeof line, "probe --from '%s/none.csv' -c '%s/none.yaml' 2>&1", folder,
             folder);
    check_program(line, 1, "none.csv' has no measurements");
    write_rows("few.csv", "2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE);
    snprintf(line, sizeof line, "probe --from '%s/few.csv' -c '%s/few.yaml' 2>&1", folder, folder);
    check_program(line, 1, "there is 1 measurement on 2 GPUs to fit them to");
    snprintf(line, sizeof line, "probe --from '%s/few.csv' -n 4 2>&1", folder);
    check_program(line, 1, "few.csv' has no measurements on 4 GPUs");
}

/* The GPU that a fit starts from is like the one that was measured. */
static void the_start_is_a_gpu_like_the_rows(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv'", folder);
    write_rows("gpu.csv", "2,wide,rest,1,80,0,0,1980,50,1,0," H200 "," DATE);
    check_program(line, 0, "wide rest");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --json", folder);
    check_program(line, 0, "\"base\": \"H200-SXM\"");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --base A100-SXM4-40GB 2>&1", folder);
    check_program(line, 1,
                  "the measurements are of \"NVIDIA H200\", but --base names A100-SXM4-40GB; "
                  "expected a GPU like h200-sxm, or of its architecture");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --json --base H100-SXM", folder);
    check_program(line, 0, "\"base\": \"H100-SXM\""); /* of the same architecture */
    write_rows("gpu.csv",
               "2,wide,rest,1,80,0,0,1410,50,1,0,\"2 x NVIDIA A100-SXM4-80GB, x\"," DATE);
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --json", folder);
    check_program(line, 0, "\"base\": \"A100-SXM4-80GB\"");
    write_rows("gpu.csv", "2,wide,rest,1,80,0,0,1410,50,1,0,\"2 x NVIDIA B999, x\"," DATE);
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' 2>&1", folder);
    check_program(line, 1,
                  "the catalogue has no GPU like \"NVIDIA B999\" to start from; expected one named "
                  "with --base");
    snprintf(line, sizeof line, "probe --from '%s/gpu.csv' --base H200-SXM", folder);
    check_program(line, 0, "wide rest");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_command_probes_and_fits),
        cmocka_unit_test(wrong_rows_are_refused),
        cmocka_unit_test(wrong_use_is_explained),
        cmocka_unit_test(the_start_is_a_gpu_like_the_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, probe_end);
}
