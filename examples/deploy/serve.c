// Runs a SavedModel by TensorFlow's C API: serve MODEL [SHARED_OBJECT]...
#include <stdio.h>
#include <stdlib.h>

#include "tensorflow/c/c_api.h"

static TF_Status* status;

static void ExpectOk(const char* call) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", call, TF_Message(status));
  exit(1);
}

static TF_Output OutputOf(TF_Graph* graph, const char* operation, int index) {
  return (TF_Output){TF_GraphOperationByName(graph, operation), index};
}

int main(int argc, char** argv) {
  status = TF_NewStatus();
  for (int i = 2; i < argc; ++i) {
    TF_LoadLibrary(argv[i], status);
    ExpectOk(argv[i]);
  }
  TF_Graph* graph = TF_NewGraph();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[1], tags, 1,
                                   graph, NULL, status);
  ExpectOk("TF_LoadSessionFromSavedModel");

  const int64_t features_dims[] = {1, 20, 30, 8}, boxes_dims[] = {40, 4};
  TF_Tensor* features = TF_AllocateTensor(TF_FLOAT, features_dims, 4, 20 * 30 * 8 * sizeof(float));
  TF_Tensor* boxes = TF_AllocateTensor(TF_FLOAT, boxes_dims, 2, 40 * 4 * sizeof(float));
  float* feature = TF_TensorData(features);
  for (int i = 0; i < 20 * 30 * 8; ++i) feature[i] = i * 37 % 101 / 101.0;
  float* box = TF_TensorData(boxes);
  for (int k = 0; k < 40; ++k) {
    const float x = k * 13 % 80, y = k * 7 % 50;
    *box++ = x, *box++ = y, *box++ = x + 20 + k % 9, *box++ = y + 15 + k % 7;
  }

  // `saved_model_cli show --dir MODEL --all` prints the operations' names.
  const TF_Output inputs[] = {OutputOf(graph, "serving_default_features", 0), OutputOf(graph, "serving_default_boxes", 0)};
  TF_Tensor* const values[] = {features, boxes};
  const TF_Output outputs[] = {OutputOf(graph, "StatefulPartitionedCall", 0),
                               OutputOf(graph, "StatefulPartitionedCall", 1)};
  TF_Tensor* results[2];
  TF_SessionRun(session, NULL, inputs, values, 2, outputs, results, 2, NULL, 0, NULL, status);
  ExpectOk("TF_SessionRun");

  const int32_t* const classes = TF_TensorData(results[0]);
  const float* const scores = TF_TensorData(results[1]);
  printf("classes");
  for (int64_t i = 0; i < TF_TensorElementCount(results[0]); ++i) printf(" %d", classes[i]);
  printf("\nscores");
  for (int64_t i = 0; i < TF_TensorElementCount(results[1]); ++i) printf(" %.6f", scores[i]);
  printf("\n");
  return 0;
}
