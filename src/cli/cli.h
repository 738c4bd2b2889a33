/* The command line: a table of commands, one thin file each. Only this room writes to standard
 * output or exits.
 *
 * To add a command: write cmd_NAME.c that defines `const struct erg_command erg_cmd_NAME`, declare
 * it here and add it to the table of main.c. Its run() receives parsed and checked values. It
 * prints its result on stdout and returns 0, or fills the error and returns -1; main.c prints the
 * error, and its status is the exit code. */
#ifndef ERG_CLI_CLI_H
#define ERG_CLI_CLI_H

#include "cli/options.h"

#include <stdio.h>

extern const struct erg_command erg_cmd_characterize;
extern const struct erg_command erg_cmd_completion;
extern const struct erg_command erg_cmd_fit;
extern const struct erg_command erg_cmd_import;
extern const struct erg_command erg_cmd_memory;
extern const struct erg_command erg_cmd_optimize;
extern const struct erg_command erg_cmd_layout;
extern const struct erg_command erg_cmd_probe;
extern const struct erg_command erg_cmd_run;
extern const struct erg_command erg_cmd_run_job;
extern const struct erg_command erg_cmd_submit;
extern const struct erg_command erg_cmd_jobs;
extern const struct erg_command erg_cmd_hook;
extern const struct erg_command erg_cmd_show;
extern const struct erg_command erg_cmd_schedule;
extern const struct erg_command erg_cmd_simulate;
extern const struct erg_command erg_cmd_tokenize;
extern const struct erg_command erg_cmd_train;
extern const struct erg_command erg_cmd_verify;
extern const struct erg_command erg_cmd_frontier;
extern const struct erg_command erg_cmd_doctor;
extern const struct erg_command erg_cmd_measure;
extern const struct erg_command erg_cmd_monitor;
extern const struct erg_command erg_cmd_record;
extern const struct erg_command erg_cmd_export;
extern const struct erg_command erg_cmd_serve;
extern const struct erg_command erg_cmd_daemon;

/* All commands; ends with NULL. */
extern const struct erg_command *const erg_commands[];

/* Sends log and progress to stderr. `verbosity`: -1 errors only; 0 also warnings and, on a
 * terminal, a progress bar with the remaining time; 1 information; 2 debugging. Colours need a
 * terminal and an unset NO_COLOR. erg_terminal_finish() removes an unfinished bar. */
void erg_terminal_start(int verbosity);
void erg_terminal_finish(void);

/* Prints text that may contain control characters, which are shown as "\x1b". */
void erg_terminal_print(FILE *out, const char *text);
/* Prints a message as one line on standard error; line breaks in names are shown as "\x0a". */
void erg_terminal_message(const char *text);
/* The same, but replaces the progress bar, which returns with the next progress. */
void erg_terminal_line(const char *text);
/* Escapes control characters in all later output on standard output. */
void erg_terminal_guard_output(void);

#endif
