/* The commands of `sherd`; each is described and run by the file of its name. */
#ifndef SHD_CLI_COMMANDS_H
#define SHD_CLI_COMMANDS_H

#include "runtime/cli/options.h"

extern const shd_command shd_command_train;
extern const shd_command shd_command_plan;
extern const shd_command shd_command_run;
extern const shd_command shd_command_debug;
extern const shd_command shd_command_doctor;
extern const shd_command shd_command_report;
extern const shd_command shd_command_sample;
extern const shd_command shd_command_checkpoint_list;
extern const shd_command shd_command_checkpoint_show;
extern const shd_command shd_command_checkpoint_verify;
extern const shd_command shd_command_checkpoint_reshard;
extern const shd_command shd_command_checkpoint_export;
extern const shd_command shd_command_checkpoint_import;
extern const shd_command shd_command_checkpoint_drill;
extern const shd_command shd_command_data_show;
extern const shd_command shd_command_data_pack;

#endif
