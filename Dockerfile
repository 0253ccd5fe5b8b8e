# Roadworthy without the source tree: the wheel and the versions that are tested together, from the registries alone.
#   docker build -t roadworthy .                                    the core, for ONNX models and stored predictions
#   docker build -t roadworthy --build-arg EXTRAS=[torch] .         with torch
#   docker run --rm --network none -v "$PWD:/work" roadworthy evaluate --model m.onnx --data signs/test --out runs/m
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml MANIFEST.in README.md LICENSE THIRD_PARTY_LICENCES.md CHANGELOG.md constraints.txt ./
COPY src ./src
ARG EXTRAS=""
RUN python -m venv /opt/roadworthy \
    && /opt/roadworthy/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ".${EXTRAS}"

FROM python:3.11-slim
COPY --from=build /opt/roadworthy /opt/roadworthy
RUN useradd --create-home --uid 1000 roadworthy && mkdir /work && chown roadworthy /work
ENV PATH=/opt/roadworthy/bin:$PATH HF_HUB_OFFLINE=1
USER 1000
WORKDIR /work
RUN roadworthy doctor
ENTRYPOINT ["roadworthy"]
CMD ["--help"]
