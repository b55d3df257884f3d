// `coda generate`: text from a checkpoint.
#include "coda/nn/generate.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coda/cli/arguments.h"
#include "coda/cli/commands.h"
#include "coda/cli/threads.h"
#include "coda/core/error.h"
#include "coda/nn/checkpoint.h"
#include "coda/nn/safetensors.h"

namespace coda::cli {
namespace {

struct Arguments {
  std::string checkpoint, prompt = "\n", dtype, logits;
  std::vector<std::string> ids;
  nn::GenerateOptions options{.tokens = 400, .sample = {.temperature = 0.8}};
  int threads = 0;
  bool json = false;
};

/// The whole context's logits, for a comparison with another library.
void write_logits(const nn::LoadedModel& model, const std::vector<std::int32_t>& prompt, const std::string& path) {
  nn::Decoder decoder(model.config, model.weights, static_cast<std::int64_t>(prompt.size()));
  const nn::HostTensor logits = decoder.all_logits(prompt);
  AtomicFile file(path);
  nn::write_safetensors(
      file,
      {{"logits", logits.dtype(), logits.shape(),
        [&](std::span<std::byte> out) { std::copy_n(logits.bytes().data(), out.size(), out.data()); }}},
      {});
  file.commit();
}

std::string bytes_of(const std::vector<std::int32_t>& tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += static_cast<char>(static_cast<unsigned char>(token));
  return text;
}

void run(Arguments args) {
  std::vector<std::int32_t> prompt = parse_whole<std::int32_t>("--ids", args.ids, 0);
  set_threads(args.threads);
  std::optional<DType> dtype;
  if (!args.dtype.empty()) dtype = parse_dtype(args.dtype);
  const nn::LoadedModel model = nn::load_model(args.checkpoint, dtype);
  const bool bytes = args.ids.empty();
  if (bytes && model.config.vocab != 256) {
    throw Error(Status::invalid_argument,
                fmt::format("generate: --prompt: expected a model whose tokens are bytes (vocab 256), got vocab {}; "
                            "give token numbers with --ids",
                            model.config.vocab));
  }
  if (bytes) {
    for (const char c : args.prompt) prompt.push_back(static_cast<unsigned char>(c));
  }
  nn::check_generate(model.config, static_cast<std::int64_t>(prompt.size()), args.options);
  if (!args.logits.empty()) write_logits(model, prompt, args.logits);
  if (!args.json) {
    if (bytes) fmt::print("{}", args.prompt);
    args.options.on_token = [bytes](std::int32_t token) {
      if (bytes) std::fputc(token, stdout);
      else fmt::print("{} ", token);
      std::fflush(stdout);
    };
  }
  const std::vector<std::int32_t> out = nn::generate(model.config, model.weights, prompt, args.options);
  if (!args.json) {
    fmt::print("\n");
    return;
  }
  nlohmann::ordered_json json{{"prompt_tokens", prompt.size()}, {"tokens", out}};
  if (bytes) json["text"] = bytes_of(out);
  // A byte model may stop inside a character.
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void add_generate(CLI::App& app) {
  Command command(app, "generate", "Continue a text with a trained model");
  auto args = std::make_shared<Arguments>();
  command
      .option("checkpoint", args->checkpoint,
              "Folder with config.json and model.safetensors (LLaMA or Qwen3, as Hugging Face names them)")
      .required();
  const Option prompt =
      command.option("-p,--prompt", args->prompt, "Text to continue; its tokens are its bytes; default: a newline");
  command.list("--ids", args->ids, "Token numbers to continue, by commas, for models with another tokeniser")
      .excludes(prompt);
  command.whole("-n,--tokens", args->options.tokens, "Tokens to append").shows_default();
  command.option("-t,--temperature", args->options.sample.temperature, "Randomness; 0 takes the likeliest token")
      .at_least(0)
      .shows_default();
  command.whole("--top-k", args->options.sample.top_k, "Choose among the k likeliest only; 0: all").shows_default();
  command.option("--top-p", args->options.sample.top_p, "Choose among the fewest whose probabilities reach p")
      .where([](double x) { return x > 0 && x <= 1; }, "a number above 0 and up to 1")
      .shows_default();
  command.whole("--seed", args->options.sample.seed, "The same seed gives the same text").shows_default();
  command.option("--dtype", args->dtype, "bf16, fp16, fp32 or fp64; default: the checkpoint's");
  command.option("--logits", args->logits, "Also write the prompt's logits (tokens, vocab) to this .safetensors");
  add_threads(command, args->threads);
  command.flag("--json", args->json, "One JSON object in place of the text");
  command.footer("Example: coda generate build/demo/checkpoint --prompt 'In the beginning' --temperature 0.7");
  command.runs([args] { run(*args); });
}

}  // namespace coda::cli
