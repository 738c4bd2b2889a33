/* ergon probe --thermal: emulated GPUs, recordings, the machine's GPUs behind the fake NVML. */
#include "commands.h"

#include "io/file.h"

static void check(int exit_code, const char *part, const char *arguments)
{
    struct erg_text line = with_folder(arguments);
    check_program(line.data, exit_code, part);
    erg_text_release(&line);
}

/* A lane of two, so that little is emulated. */
static const char lane[] = "name: lane\nconfidence: none\n"
                           "slots:\n"
                           "  - {position: rear, lane: 0}\n"
                           "  - {position: front, lane: 0}\n"
                           "heat:\n  inlet_c: 29\n  die_k_per_w: 0.02\n  sink_k_per_w: 0.03\n"
                           "  air_k_per_w: 0.025\n  die_time_s: 2\n  sink_time_s: 40\n"
                           "limit:\n  hold_c: 85\n";

static void emulated_gpus_are_fitted(void **state)
{
    (void)state;
    write_text("lane.yaml", lane);
    check(0, "a watt of a front GPU warms the air of the rear one in its lane by 0.02",
          "probe -t -d emulated --base @/lane.yaml --turn 80 -o @/lane.rec -c @/found.yaml");
    check(0, "\"coupling\": \"coupled\",\n  \"positions_guessed\": false,",
          "probe -t --from @/lane.rec --json");
    check(0, "held out: RMS 0.", "probe -t --from @/lane.rec --until 250");
    check(0, "this recording: RMS 0.", "probe -t --from @/lane.rec --base @/found.yaml");
    check(1, "it has 8 slots", "probe -t --from @/lane.rec --base hgx-8-air 2>&1");
    check(1, "--until: expected less than the", "probe -t --from @/lane.rec --until 5000 2>&1");
    check(1, "nothing is overwritten", "probe -t -d emulated -o @/lane.rec 2>&1");
    char *text;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("found.yaml"), 0, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "name: found\n"));
    assert_non_null(strstr(text, "fitted to emulated GPUs: RMS 0."));
    assert_non_null(strstr(text, "  - {position: rear, lane: 0"));
    assert_non_null(strstr(text, "hold_c: 85"));
    free(text);
}

static void each_gpu_works_in_turn(void **state)
{
    (void)state;
    set_world(QUIET_WORLD);
    check(1, "expected two minutes or more",
          "probe -t --turn 1 -o @/turns.rec -- sh -c 'echo $CUDA_VISIBLE_DEVICES >>@/who; sleep 9' "
          "2>&1");
    char *text, *second;
    struct erg_error err;
    assert_ok(erg_file_read(in_folder("who"), 0, &text, NULL, &err), &err);
    assert_true(strncmp(text, "GPU-", 4) == 0);
    second = strchr(text, '\n');
    assert_non_null(second);
    assert_true(strncmp(second + 1, "GPU-", 4) == 0);
    assert_true(strncmp(text, second + 1, (size_t)(second - text)) != 0);
    free(text);
    check(0, "power_inst_mw", "export @/turns.rec --format csv");
    check(1, "loading GPU 0 with 'false'", "probe -t --turn 1 -o @/false.rec -- false 2>&1");
}

static void wrong_usage_is_explained(void **state)
{
    (void)state;
    check(2, "expected them only with --thermal", "probe --turn 5 2>&1");
    check(2, "expected them only with --thermal", "probe -- true 2>&1");
    check(2, "expected it without a command, --turn and --device",
          "probe -t --from a.rec --turn 9 2>&1");
    check(2, "a chassis to compare with the recording, or --calibrate, a chassis to fit",
          "probe -t --from a.rec --base hgx-8-air -c b.yaml 2>&1");
    check(2, "expected a command only for the GPUs of this machine",
          "probe -t -d emulated -- true 2>&1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_gpus_are_fitted),
        cmocka_unit_test(each_gpu_works_in_turn),
        cmocka_unit_test(wrong_usage_is_explained),
    };
    return cmocka_run_group_tests(tests, commands_begin, remove_folder);
}
