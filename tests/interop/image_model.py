"""A runtime of MLServer that takes whole images as uint8 and answers logits: the same model, served another way."""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri


class ImageModel(MLModel):
    async def load(self) -> bool:
        weights = np.load(await get_model_uri(self._settings))
        self._coefficients, self._intercept = weights["coefficients"], weights["intercept"]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        images = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        flat = images.reshape(len(images), -1).astype(np.float64) / 255
        logits = flat @ self._coefficients.T + self._intercept
        names = NumpyCodec.encode_output("labels", logits.argmax(axis=1))
        scores = NumpyCodec.encode_output("logits", logits)
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=[names, scores])
