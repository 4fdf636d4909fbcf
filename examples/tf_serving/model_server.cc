// Stands for TF Serving's model server: it loads a model and calls its
// signature. What it needs of tensorflow_ops is linked.
#include <cstdio>
#include <string>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/tensor.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  std::vector<tensorflow::OpDef> ops;
  tensorflow::OpRegistry::Global()->GetRegisteredOps(&ops);
  int count = 0;
  for (const auto& op : ops) count += op.name().rfind("TensorflowOps>", 0) == 0;
  std::printf("%d ops\n", count);

  tensorflow::SavedModelBundle bundle;
  TF_CHECK_OK(tensorflow::LoadSavedModel({}, {}, argv[1], {"serve"}, &bundle));
  const auto& signature = bundle.GetSignatures().at("serving_default");

  tensorflow::Tensor logits(tensorflow::DT_FLOAT, {2, 3});
  for (int i = 0; i < 6; ++i) logits.flat<float>()(i) = i % 4;
  std::vector<tensorflow::Tensor> outputs;
  TF_CHECK_OK(bundle.GetSession()->Run(
      {{signature.inputs().at("logits").name(), logits}},
      {signature.outputs().at("probabilities").name()}, {}, &outputs));
  for (int i = 0; i < 6; ++i) {
    std::printf("%.6f%c", outputs[0].flat<float>()(i), i % 3 == 2 ? '\n' : ' ');
  }
}
