/* Checks of a job before it has ranks: what it asks for, held against what is there. */
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/spare.h"
#include "runtime/base/status.h"
#include "runtime/train/checks/check_table.h"
#include "runtime/train/checks/disk_probe.h"
#include "runtime/train/job_data.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/weights.h"

#include <string.h>
#include <sys/resource.h>

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* --- the model and its memory ------------------------------------------------------------------------------------- */

sherd_status shd_check_plan(shd_checkup *checkup, shd_finding *out) {
    const shd_job *job = checkup->job;
    SHD_TRY(shd_job_plan(job, (int32_t)job->shard.stage, 0, &checkup->plan));
    const shd_plan *plan = checkup->plan;
    int32_t threads = shd_job_threads(job);
    shd_finding_say(out, "%s, %lld parameters in %d units, on %lld rank%s%s x %d thread%s, stage %lld, gather %s%s",
                    shd_job_word("model.family", (int32_t)job->model.family), (long long)plan->parameter_count,
                    plan->unit_count, (long long)job->run.ranks, plural(job->run.ranks),
                    shd_mesh_text(&plan->policy).text, threads, plural(threads), (long long)job->shard.stage,
                    shd_gather_text(&plan->policy), shd_precision_text(&plan->policy).text);
    shd_finding_note(out, "parameters", (double)plan->parameter_count);
    shd_finding_note(out, "ranks", (double)job->run.ranks);
    shd_finding_note(out, "threads", threads);
    return SHERD_OK;
}

sherd_status shd_check_job_memory(shd_checkup *checkup, shd_finding *out) {
    SHD_TRY(shd_preflight_memory(checkup->job, checkup->plan));
    int64_t ranks = checkup->job->run.ranks, wanted = shd_preflight_host_bytes(checkup->plan) * ranks;
    int64_t there = shd_memory_total(), free = shd_memory_free();
    shd_finding_say(out, "%lld rank%s take%s %s of the %s there are, %s of them free", (long long)ranks, plural(ranks),
                    ranks == 1 ? "s" : "", shd_bytes_say((double)wanted).text, shd_bytes_say((double)there).text,
                    shd_bytes_say((double)free).text);
    shd_finding_note(out, "wanted_bytes", (double)wanted);
    shd_finding_note(out, "total_bytes", (double)there);
    shd_finding_note(out, "free_bytes", (double)free);
    if (wanted > free)
        shd_finding_warn(out, "other programs hold what is missing: end them, or the job will be refused its memory");
    return SHERD_OK;
}

sherd_status shd_check_init(shd_checkup *checkup, shd_finding *out) {
    const shd_job *job = checkup->job;
    shd_model *model;
    shd_weights_file *file;
    shd_finding_say(out, "random, from seed %lld", (long long)job->train.seed);
    if (!job->model.init.path) return SHERD_OK;
    SHD_TRY(shd_job_model(job, &model));
    sherd_status status = shd_weights_file_open(job->model.init.path, model, &file);
    if (status == SHERD_OK) {
        shd_finding_say(out, "%s (%s): every tensor is there, in its shape", job->model.init.path,
                        shd_weights_file_kind(file));
        shd_weights_file_close(file);
    }
    shd_model_destroy(model);
    return status;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

/* So few are all looked at without being asked: it takes no tenth of a second. */
enum { FEW_TOKENS = 32 << 20 };

static bool has_few(const shd_checkup *checkup, const shd_dataset *dataset) {
    const shd_job *job = checkup->job;
    int64_t length = job->model.family == SHD_JOB_MLP ? job->model.inputs + job->model.outputs : 1, numbers;
    return shd_mul_checked(shd_dataset_token_count(dataset), length, &numbers) && numbers <= FEW_TOKENS;
}

/* Looks at all of a data set, or at samples of it, and says what it holds. */
static sherd_status look_at(const shd_checkup *checkup, shd_dataset *dataset, bool all, shd_finding *out) {
    const char *items = shd_job_items(checkup->job);
    int64_t tokens = shd_dataset_token_count(dataset), sequences = shd_dataset_sequence_count(dataset), summed = 0;
    int64_t files = 0;
    for (int32_t i = 0; i < shd_dataset_source_count(dataset); i++) files += shd_dataset_source(dataset, i).file_count;
    double start_ms = shd_clock_ms();
    SHD_TRY(all ? shd_dataset_scan(dataset, &summed) : shd_dataset_sample(dataset));
    double ms = shd_clock_ms() - start_ms;
    shd_finding_say(out, "%lld file%s, %lld %s", (long long)files, plural(files), (long long)tokens, items);
    if (checkup->job->model.family != SHD_JOB_MLP) shd_finding_add(out, " in %lld sequences", (long long)sequences);
    shd_finding_add(out, all ? ", all of them looked at" : ", some looked at (--all-data looks at all)");
    if (summed > 0) shd_finding_add(out, ", %lld checksum%s right", (long long)summed, plural(summed));
    shd_finding_note(out, "files", (double)files);
    shd_finding_note(out, items, (double)tokens);
    shd_finding_note(out, "looked_at_all", all);
    shd_finding_note(out, "checksums", (double)summed);
    shd_finding_note(out, "look_ms", ms);
    return SHERD_OK;
}

sherd_status shd_check_training_data(shd_checkup *checkup, shd_finding *out) {
    const shd_job *job = checkup->job;
    SHD_TRY(shd_job_open_training(job, &checkup->training));
    bool all = checkup->all_data || (checkup->thorough && has_few(checkup, checkup->training));
    SHD_TRY(look_at(checkup, checkup->training, all, out));
    double epochs = (double)job->train.steps * (double)job->train.global_batch /
                    (double)shd_dataset_sequence_count(checkup->training);
    shd_finding_add(out, "; the job takes %.3g epoch%s", epochs, epochs == 1 ? "" : "s");
    shd_finding_note(out, "epochs", epochs);
    return SHERD_OK;
}

/* Reads all that a validation of this job will read: a bad row would end the run at its first validation, and its steps
 * would be lost. */
static sherd_status read_validation(shd_checkup *checkup, int64_t *sequence_count) {
    const shd_job *job = checkup->job;
    shd_feed *feed;
    shd_evaluation_plan plan =
        shd_evaluation_plan_make(shd_dataset_sequence_count(checkup->validation), job->train.evaluate_sequences,
                                 job->train.micro_batch, checkup->options.world_size);
    *sequence_count = plan.sequence_count;
    if (job->train.evaluate_every == 0 || checkup->from.place.step >= job->train.steps) return SHERD_OK;
    SHD_TRY(shd_job_create_feed(job, checkup->validation, &checkup->options, 1, &feed));
    sherd_status status = SHERD_OK;
    for (int64_t index = 0; index < plan.micro_batch_count && status == SHERD_OK; index++)
        status = shd_feed_read_padded(feed, index, plan.sequence_count, &(int64_t){0});
    shd_feed_destroy(feed);
    return status;
}

sherd_status shd_check_validation_data(shd_checkup *checkup, shd_finding *out) {
    const shd_job *job = checkup->job;
    int64_t sequence_count;
    if (job->data.validation.count == 0) {
        shd_finding_skip(out, "the job has none");
        return SHERD_OK;
    }
    SHD_TRY(shd_job_open_validation(job, &checkup->validation));
    SHD_TRY(look_at(checkup, checkup->validation, checkup->all_data, out));
    SHD_TRY(read_validation(checkup, &sequence_count));
    if (job->train.evaluate_every > 0) shd_finding_add(out, "; each validation takes %lld", (long long)sequence_count);
    return SHERD_OK;
}

sherd_status shd_check_resume(shd_checkup *checkup, shd_finding *out) {
    const shd_job *job = checkup->job;
    SHD_TRY(shd_resume_find(job, checkup->training, checkup->report, &checkup->from));
    const shd_resume *from = &checkup->from;
    if (!from->path)
        shd_finding_say(out, "no checkpoint: starts at step 0");
    else if (from->weights_only)
        shd_finding_say(out, "starts at step 0 with the parameters of %s", from->path);
    else
        shd_finding_say(out, "%s %s, %lld of %lld steps are done",
                        from->place.step < job->train.steps ? "goes on from" : "nothing is left to do: by", from->path,
                        (long long)from->place.step, (long long)job->train.steps);
    shd_finding_note(out, "step", (double)from->place.step);
    return SHERD_OK;
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

sherd_status shd_check_outputs(shd_checkup *checkup, shd_finding *out) {
    const shd_job *job = checkup->job;
    shd_preflight_room *room = &checkup->room;
    if (checkup->from.place.step >= job->train.steps) {
        shd_finding_skip(out, "nothing is left to do, and nothing will be written");
        return SHERD_OK;
    }
    SHD_TRY(shd_preflight_outputs(job, checkup->plan, room));
    int64_t most = room->all_bytes - room->taken_bytes;
    if (room->there_bytes >= 0 && most > room->there_bytes) {
        shd_finding_say(out,
                        "checkpoint.dir is %s, which has %lld bytes free; checkpoint.keep %lld and the one being "
                        "written may take %lld together, %lld of them are taken",
                        job->checkpoint.dir, (long long)room->there_bytes, (long long)job->checkpoint.keep,
                        (long long)room->all_bytes, (long long)room->taken_bytes);
        shd_finding_warn(out, "make room, or lower checkpoint.keep");
    } else if (room->there_bytes < 0) {
        shd_finding_say(out, "%s can be written; its file system does not tell what is free", job->checkpoint.dir);
    } else {
        shd_finding_say(out, "%s can be written, %s free; a checkpoint takes up to %s", job->checkpoint.dir,
                        shd_bytes_say((double)room->there_bytes).text, shd_bytes_say((double)room->one_bytes).text);
        if (room->all_bytes > 0)
            shd_finding_add(out, ", those that stay %s", shd_bytes_say((double)room->all_bytes).text);
    }
    shd_finding_note(out, "free_bytes", (double)room->there_bytes);
    shd_finding_note(out, "checkpoint_bytes", (double)room->one_bytes);
    shd_finding_note(out, "kept_bytes", (double)room->all_bytes);
    return SHERD_OK;
}

/* Every rank of a shard group writes its part of a checkpoint into one file. */
sherd_status shd_check_file_size(shd_checkup *checkup, shd_finding *out) {
    struct rlimit limit;
    int64_t file = shd_div_ceil(checkup->room.one_bytes, shd_policy_split(&checkup->plan->policy));
    if (checkup->room.one_bytes == 0) {
        shd_finding_skip(out, "nothing will be written");
        return SHERD_OK;
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        shd_finding_say(out, "files may grow without a limit");
        return SHERD_OK;
    }
    shd_finding_note(out, "limit_bytes", (double)limit.rlim_cur);
    shd_finding_note(out, "file_bytes", (double)file);
    if ((int64_t)limit.rlim_cur >= file || limit.rlim_cur > INT64_MAX) {
        shd_finding_say(out, "a file may have %s, and the largest has up to %s",
                        shd_bytes_say((double)limit.rlim_cur).text, shd_bytes_say((double)file).text);
        return SHERD_OK;
    }
    return shd_fail(SHERD_IO,
                    "a file may have %llu bytes, but a rank's file of a checkpoint takes up to %lld; raise the limit "
                    "(ulimit -f unlimited)",
                    (unsigned long long)limit.rlim_cur, (long long)file);
}

sherd_status shd_check_other_jobs(shd_checkup *checkup, shd_finding *out) {
    bool known;
    SHD_TRY(shd_preflight_claimable(checkup->job, &known));
    shd_finding_say(out, "none writes where this one will");
    if (known) return SHERD_OK;
    shd_finding_say(out, "whether one writes where this one will cannot be told: files cannot be locked there");
    shd_finding_warn(out, "make sure that none does, or set another run.dir");
    return SHERD_OK;
}

/* What the file system of checkpoint.dir can do, or without a job that of the working directory, which need not be one
 * where anything can be written. */
sherd_status shd_check_files(shd_checkup *checkup, shd_finding *out) {
    shd_disk_abilities can;
    if (checkup->job && !checkup->room.folder[0]) {
        shd_finding_skip(out, "nothing will be written");
        return SHERD_OK;
    }
    const char *folder = checkup->job ? checkup->room.folder : ".", *name = checkup->job ? folder : "working directory";
    sherd_status status = shd_disk_abilities_find(folder, &can);
    if (status == SHERD_IO && !checkup->job) {
        shd_finding_say(out, "%s: nothing is tried: %s", name, sherd_last_error());
        return SHERD_OK;
    }
    SHD_TRY(status);
    shd_finding_say(out, "%s: locks %s, past the page cache (O_DIRECT) %s, folders synced %s", name,
                    can.locks ? "yes" : "no", can.direct ? "yes" : "no", can.syncs ? "yes" : "no");
    shd_finding_note(out, "locks", can.locks);
    shd_finding_note(out, "direct", can.direct);
    shd_finding_note(out, "folders_synced", can.syncs);
    if (!can.locks)
        shd_finding_warn(out, "nothing stops a second job from writing there: give each job a run.dir of its own");
    if (!can.syncs)
        shd_finding_warn(out, "after a power failure the newest checkpoints may be gone: keep more than one "
                              "(checkpoint.keep)");
    return SHERD_OK;
}

/* --- the disk ----------------------------------------------------------------------------------------------------- */

/* As much as a checkpoint has, within bounds: a small one tells little of a slow disk. */
enum { LEAST_PROBE_BYTES = 16 << 20, PROBE_BYTES = 256 << 20, PROBE_MS = 1000, ROOM_PART = 4 };

sherd_status shd_check_disk(shd_checkup *checkup, shd_finding *out) {
    const shd_preflight_room *room = &checkup->room;
    shd_disk_rates rates;
    if (room->one_bytes == 0) {
        shd_finding_skip(out, "nothing will be written");
        return SHERD_OK;
    }
    int64_t most = shd_min(PROBE_BYTES, shd_max(room->one_bytes, LEAST_PROBE_BYTES));
    if (room->there_bytes >= 0) most = shd_min(most, room->there_bytes / ROOM_PART);
    SHD_TRY(shd_disk_probe(room->folder, most, PROBE_MS, &rates));
    checkup->write_bytes_per_s = rates.write_bytes_per_s;
    double save_s = (double)room->one_bytes / rates.write_bytes_per_s;
    shd_finding_say(out, "%s: %s/s written%s, %s/s read%s, %s tried; a checkpoint takes %.2g s of it", room->folder,
                    shd_bytes_say(rates.write_bytes_per_s).text, rates.direct ? "" : " through the page cache",
                    shd_bytes_say(rates.read_bytes_per_s).text, rates.direct ? "" : " (from the page cache)",
                    shd_bytes_say((double)rates.bytes).text, save_s);
    shd_finding_note(out, "write_bytes_per_s", rates.write_bytes_per_s);
    shd_finding_note(out, "read_bytes_per_s", rates.read_bytes_per_s);
    shd_finding_note(out, "probed_bytes", (double)rates.bytes);
    shd_finding_note(out, "direct", rates.direct);
    shd_finding_note(out, "save_s", save_s);
    return SHERD_OK;
}
