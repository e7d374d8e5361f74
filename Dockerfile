# The server in a container: docker build --tag headwater . && docker run --publish 127.0.0.1:4437:4437 --volume headwater:/data --env HEADWATER_NO_AUTH=true headwater
# HEADWATER_NO_AUTH is for a port that only this machine, or a proxy that decides, can reach. For any other, mount an access file instead
# (--volume ./access:/access:ro --env HEADWATER_AUTH=/access/auth.toml); user 10001 must be able to read it.
# Settings are variables (--env HEADWATER_RETENTION=explicit) or flags behind `serve`; docs/reference/settings.md lists them.
# `scripts/docker-steps` replays this file without a Docker daemon.

FROM python:3.14-slim-bookworm AS build

WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore HEADWATER_REQUIRE_COMPILED=1

# For the compiled modules; nothing of it is in the image.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*

# The environment has no pip of its own, so none is left in it.
RUN python -m venv --without-pip /opt/headwater

# The lock changes less often than the source, so this layer is usually cached.
COPY requirements.lock ./
RUN pip --python /opt/headwater/bin/python install --require-hashes --requirement requirements.lock

COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
RUN pip --python /opt/headwater/bin/python install --no-deps --no-build-isolation .

# The lock holds the build backend too. The server does not need it; `check` fails if that ever changes.
RUN pip --python /opt/headwater/bin/python uninstall --yes cython setuptools \
 && pip --python /opt/headwater/bin/python check

RUN mkdir -p /empty/data


FROM python:3.14-slim-bookworm

LABEL org.opencontainers.image.title="Headwater" \
      org.opencontainers.image.description="A server for durable streams over plain HTTP." \
      org.opencontainers.image.licenses="Apache-2.0"

COPY --from=build /opt/headwater /opt/headwater
# A new volume takes its owner from this folder. A host folder mounted here must belong to user 10001 already.
COPY --from=build --chown=10001:10001 /empty/data /data

ENV PATH=/opt/headwater/bin:$PATH HEADWATER_HOST=0.0.0.0 HEADWATER_PORT=4437 HEADWATER_LOG_FORMAT=json

# `data`, the default directory, is then the volume; and `serve --memory` still works.
WORKDIR /
VOLUME /data
EXPOSE 4437
USER 10001:10001

# /healthz answers during recovery too, so a long start is not taken for a failure.
# It finds out whether the server speaks TLS; a port other than 4437 has to be in HEADWATER_PORT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["python", "-m", "headwater.healthcheck"]

# SIGTERM drains. Give it time: docker stop --time 60.
STOPSIGNAL SIGTERM
ENTRYPOINT ["headwater"]
CMD ["serve"]
