#include "runtime/train/job_data.h"

#include "runtime/train/job_setup.h"

static sherd_status open_dataset(const shd_job *job, const char *key, const shd_job_sources *sources, bool shuffle,
                                 shd_dataset **out) {
    shd_sample_shape samples;
    const bool has_samples = shd_job_samples(job, &samples);
    const shd_dataset_config config = {.key = key,
                                       .sources = sources,
                                       .samples = has_samples ? &samples : NULL,
                                       .format = job->data.format,
                                       .vocab_size = job->model.vocab_size,
                                       .context = job->model.context,
                                       .ignored_token = job->data.ignored_token,
                                       .separator = job->data.document_separator,
                                       .seed = (uint64_t)job->train.seed,
                                       .shuffle = shuffle};
    return shd_dataset_open(&config, out);
}

sherd_status shd_job_open_training(const shd_job *job, shd_dataset **out) {
    return open_dataset(job, "data.train", &job->data.train, job->data.shuffle, out);
}

sherd_status shd_job_open_validation(const shd_job *job, shd_dataset **out) {
    return open_dataset(job, "data.validation", &job->data.validation, false, out);
}

sherd_status shd_job_create_feed(const shd_job *job, shd_dataset *dataset, const sherd_options *options,
                                 int32_t micro_steps, shd_feed **out) {
    shd_feed_config config = {
        .dataset = dataset,
        .context = job->model.context,
        .separator = job->data.attend_across_documents ? -1 : job->data.document_separator,
        .micro_batch = job->train.micro_batch,
        .micro_steps = micro_steps,
        .mesh = {.rank = options->rank, .world_size = options->world_size, .replicas = options->replicas}};
    config.samples = shd_job_samples(job, &config.shape);
    return shd_feed_create(&config, out);
}
